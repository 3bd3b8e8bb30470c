"""Vectors of LANES floats as values, and rows of them: what all other kernels are built from."""
