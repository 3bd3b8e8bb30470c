"""What is learned by: an entry for each loss and each optimiser, with its keys and its meaning in float64."""
