"""Converts units of length to nanometres, by the names that image formats use."""

from __future__ import annotations

_NANOMETRES = {
    ("angstrom", "å", "ångström"): 0.1,
    ("picometer", "picometre", "pm"): 1e-3,
    ("nanometer", "nanometre", "nm"): 1.0,
    ("micrometer", "micrometre", "micron", "microns", "um", "µm", "μm"): 1e3,
    ("millimeter", "millimetre", "mm"): 1e6,
    ("centimeter", "centimetre", "cm"): 1e7,
    ("meter", "metre", "m"): 1e9,
    ("inch", "in"): 2.54e7,
}
NANOMETRES = {name: size for names, size in _NANOMETRES.items() for name in names}


def nanometres(unit: str) -> float | None:
    """Return the nanometres of one unit, None if it is unknown; knows ImageJ's escape of the letter mu."""
    return NANOMETRES.get(unit.strip().replace("\\u00B5", "µ").lower())
