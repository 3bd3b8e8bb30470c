"""Kernels for volumes of users: exact sums for statistics, rows of files, LZF lengths, flooding, joining of regions."""
