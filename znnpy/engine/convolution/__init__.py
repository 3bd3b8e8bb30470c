"""Tasks of convolutions, by each algorithm."""
