"""The type of progress callbacks for compilation, measuring and simulation, and the names of these stages."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str, int, int], None]
"""Called with the stage, how much of it is done, and how much there is; may be called from other threads."""

COMPILING = "compiling kernels for this CPU, once"
MEASURING = "measuring layers on this CPU, once"
SIMULATING = "simulating ranks"
