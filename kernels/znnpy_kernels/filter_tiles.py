"""Packed filters to spectra, and spectra to the gradients of packed filters, on tiles.

Argument words. Addresses in bytes; strides in floats; all else counts.
"""

from __future__ import annotations

FILTERS_FIELDS = (
    "source", "source_input", "source_z", "source_y", "source_x", "source_lane", "lanes", "inputs",
    "taps_z", "taps_y", "taps_x", "size_z", "size_y", "size_x", "target", "target_frequency",
    "target_input", "conjugate", "scratch", "scratch_worker",
)  # fmt: skip
GRADIENT_FIELDS = (
    "source", "source_frequency", "source_input", "inputs", "taps_z", "taps_y", "taps_x", "size_z",
    "size_y", "size_x", "target", "target_input", "target_z", "target_y", "target_x", "accumulate",
    "scale:float", "scratch", "scratch_worker",
)  # fmt: skip
