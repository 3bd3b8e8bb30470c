"""TIFF stacks and folders of TIFF planes, read by region."""
