"""Hands trained networks on to other programs: one description of the computation, a writer for each format."""
