"""Further members of a run that was taken over: nets of one shape whose logits are averaged, as nnU-Net's folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from znnpy.config.loading import load_config
from znnpy.file_arrays import FileArray
from znnpy.train import checkpoint as checkpoints
from znnpy.train.checkpoint import Arrays, Contents
from znnpy.train.run_directory import CONFIG
from znnpy.train.start import SavedRun, contents_of


def member_folder(run: Path, number: int) -> Path:
    """Return the folder of a member's weights; numbers count from 1, as the run's own weights are the first."""
    return run / checkpoints.MEMBERS / f"{number:03d}"


class Member:
    """Gives the parameters of a member, RunError for damaged ones: first those that are there already, if any.

    They are read anew whenever they are asked for again, so that as few members are in memory as their user keeps.
    """

    def __init__(self, read: Callable[[], Arrays], there: Arrays | None = None) -> None:
        self._read, self._there = read, there

    def __call__(self) -> Arrays:
        """Return the parameters by name."""
        there, self._there = self._there, None
        return self._read() if there is None else there


def members_of(saved: SavedRun) -> Sequence[Member]:
    """Return all members, the run's own first; of a run that was trained since its own alone."""
    own = dict(saved.weights.parameters)
    averages = saved.config.training.ema is not None
    # As the run's own weights, so do those of the others stay in their files.
    in_file = any(isinstance(values, FileArray) for values in own.values())
    names = tuple(own)
    # Without the weights, which nobody shall keep.
    light = replace(saved, checkpoint=replace(saved.checkpoint, parameters={}, optimizer_state={}))

    @cache  # not read for a run of one member
    def contents() -> Contents:
        # As it was trained: overrides, of the precision for one, change nothing in the files.
        known = light.contents or contents_of(load_config(light.path / CONFIG))
        return replace(known, states=averages, in_file=in_file)

    def read_own() -> Arrays:
        found = checkpoints.of_iteration(light.path, light.checkpoint.iteration, contents())
        return dict(replace(light, checkpoint=found).weights.parameters)

    def reading(path: Path) -> Callable[[], Arrays]:
        def read() -> Arrays:
            found = checkpoints.load(path, contents()).parameters
            return {name: found[name] for name in names}

        return read

    return [Member(read_own, own), *(Member(reading(path)) for path in further_members(saved))]


def further_members(saved: SavedRun) -> list[Path]:
    """Return the checkpoints of the members beside the run's own; none of a run that was trained since."""
    own = checkpoints.path_of(saved.path, saved.checkpoint.iteration)
    return checkpoints.members_beside(saved.path, own)
