"""How long preparations tell that they go on."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str, int, int], None]
"""What is done, how much of it is done, and how much there is; may come from other threads."""

COMPILING = "compiling kernels for this CPU, once"
MEASURING = "measuring layers on this CPU, once"
SIMULATING = "simulating ranks"
