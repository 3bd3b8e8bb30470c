"""HDF5 files of unknown origin: datasets read by region, without any other file."""
