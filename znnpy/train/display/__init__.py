"""Shows runs to people: `run.html` while one trains, comparisons of several, event files for TensorBoard."""
