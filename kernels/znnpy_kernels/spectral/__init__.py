"""Tiled spectral convolution: transforms of tiles, and products of each frequency."""
