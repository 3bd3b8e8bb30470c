"""Reads TIFF stacks and folders of TIFF planes by region."""
