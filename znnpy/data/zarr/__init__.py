"""Zarr folders of unknown origin: arrays read by region, without leaving the folder."""
