"""Writes the page of a run that does not train, from its directory alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from znnpy.atomic_files import write_text
from znnpy.config.models import Config
from znnpy.errors import RunError, ZnnpyError
from znnpy.network import trained_network
from znnpy.train.best import best_of
from znnpy.train.display.history import read_history
from znnpy.train.display.page import Facts, render
from znnpy.train.display.slices import Slices
from znnpy.train.run_directory import PAGE, SLICES


def facts_of(run: Path, config: Config) -> Facts:
    """Return what a run's page says beside its curves."""
    best = best_of(config, trained_network(config))
    return Facts(run.name, config.training.iterations, best.score, best.higher)


def write_page(run: Path, config: Config, state: str) -> None:
    """Write run.html, with the scores and the picture of the final evaluation; raises RunError if the disk fails."""
    history = read_history(run)
    pictures = Slices.read(run / SLICES, history.iteration).pictures
    text = render(facts_of(run, config), history, pictures, state, run=run)
    write_text(run / PAGE, text, RunError)


def show_finished(run: Path, config: Config, state: str, note: Callable[[str], None]) -> None:
    """Write run.html as `write_page` does; a note where that fails, which spoils no run."""
    try:
        write_page(run, config, state)
    except ZnnpyError as error:
        note(f"warning: {error}")
