"""Patches for training: drawn, augmented, turned into targets, prepared ahead."""
