"""Bundles of MONAI: configs read as data, without their expressions, and the networks that they name."""
