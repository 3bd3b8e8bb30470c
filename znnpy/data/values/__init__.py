"""Statistics of a volume's values: range, mean and deviation, numbers that are not finite."""
