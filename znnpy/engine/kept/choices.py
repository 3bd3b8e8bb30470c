"""Keeps how many samples are computed at once (`microbatch: auto`), where finding that out has taken long."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

from znnpy_kernels.machine import cache

from znnpy.engine.kept import folder
from znnpy.engine.kept.arrays_file import read, written
from znnpy.engine.kept.keys import Choosing, choice_family, choice_key
from znnpy.engine.step_tasks import Settings
from znnpy.errors import reason

LEAST_SECONDS = 0.5
"""Of this process, that a choice takes which is kept: others are soon made again."""
SAMPLES = "samples"


def kept_choice(choice: Choosing, settings: Settings, choose: Callable[[], int]) -> int:
    """Return one of the sizes of a choice: that of an earlier process, or what `choose` returns, which is kept."""
    # Sizes first, as a digest takes longer than small networks do without.
    if folder.has(choice_family(choice, settings)):
        found = _recalled(choice, settings)
        if found is not None:
            return found
    began = time.process_time()
    chosen = choose()
    if time.process_time() - began >= LEAST_SECONDS and not cache.read_only():
        _keep(choice, settings, chosen)
    return chosen


def _recalled(choice: Choosing, settings: Settings) -> int | None:
    name = choice_key(choice, settings)
    content = name and folder.content(name)
    found = name and content and read(name, content)
    return found[0][SAMPLES] if found else None


def _keep(choice: Choosing, settings: Settings, chosen: int) -> None:
    name = choice_key(choice, settings)
    if name is None:
        return
    try:
        folder.keep(name, written(name, {SAMPLES: chosen}, {}))
    except OSError as error:
        warnings.warn(f"the choice of microbatches is not kept: {reason(error)}", stacklevel=2)
