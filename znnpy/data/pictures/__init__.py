"""Reads PNG and JPEG pictures, a slice each, and folders of them."""
