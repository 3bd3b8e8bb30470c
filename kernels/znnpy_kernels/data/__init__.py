"""Volumes on their way in and out: statistics, rows of a file, objects."""
