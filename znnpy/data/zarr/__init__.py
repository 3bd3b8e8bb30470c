"""Reads arrays of untrusted Zarr folders by region, without leaving the folder."""
