"""FFTW's wisdom of a run: kept beside its plan, so that the run goes on with the same bits after a lost cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from znnpy.errors import PlanError, RunError, reason
from znnpy.files import write_text
from znnpy.plan import Plan, fftw
from znnpy.plan.saved import saved_plan
from znnpy.train.rundir import FFTW


def keep_wisdom(run: Path, plan: Plan) -> bool:
    """Write what the plan's FFTs were planned by, unless it is there or no layer runs by FFTW.

    Whether it was written.
    """
    text = saved_plan(plan).fftw
    if text is None or (run / FFTW).exists():
        return False
    write_text(run / FFTW, text, RunError)
    return True


def pin_wisdom(run: Path, note: Callable[[str], None]) -> None:
    """Plan FFTs as the run does; a note when its wisdom cannot be used."""
    try:
        fftw.pin((run / FFTW).read_text(encoding="ascii"))
    except FileNotFoundError:
        return
    except (OSError, ValueError, PlanError) as error:
        note(
            f"warning: {run / FFTW} cannot be used: {reason(error)}; FFTs are planned by this machine's "
            "wisdom and may round otherwise"
        )
