"""Winograd's minimal filtering as tasks."""
