"""The losses and optimisers that exist: an entry for each, with its keys and its float64 definition."""
