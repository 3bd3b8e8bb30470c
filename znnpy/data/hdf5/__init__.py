"""Reads datasets of untrusted HDF5 files by region, without any other file."""
