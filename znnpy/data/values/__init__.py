"""What the values of a volume are: extremes, mean and deviation, numbers that are not finite."""
