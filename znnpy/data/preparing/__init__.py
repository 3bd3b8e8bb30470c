"""Scans as networks see them, and back: axes, cropping, normalisation, resampling, as nnU-Net does it."""
