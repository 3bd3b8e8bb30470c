"""Winograd's minimal filtering for filters of 3^3 taps."""
