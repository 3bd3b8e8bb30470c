"""Graphs that another process has connected, kept beside kernels and wisdom for starts of large networks."""
