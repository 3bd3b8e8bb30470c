"""Pictures are blank, but for tests that ask for `drawn`."""

from undrawn import drawn, undrawn

__all__ = ["drawn", "undrawn"]
