"""Takes over models of other programs: a source for each, which says the model as a config and weights of a run."""
