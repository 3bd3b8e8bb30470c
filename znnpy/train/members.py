"""Further members of a run that was taken over: nets of one shape whose logits are averaged, as nnU-Net's folds."""

from __future__ import annotations

from pathlib import Path

from znnpy.train import checkpoint as checkpoints
from znnpy.train.checkpoint import Arrays
from znnpy.train.run_directory import MEMBERS
from znnpy.train.start import SavedRun, contents_of


def member_folder(run: Path, number: int) -> Path:
    """Return the folder of a member's weights; numbers count from 1, as the run's own weights are the first."""
    return run / MEMBERS / f"{number:03d}"


def members_of(saved: SavedRun) -> list[Arrays]:
    """Return the parameters of all members, the run's own first; of a run that was trained since its own alone.

    Raises RunError for weights that are damaged.
    """
    weights = saved.weights
    found: list[Arrays] = [dict(weights.parameters)]
    contents = contents_of(saved.config)
    for path in further_members(saved):
        own = checkpoints.load(path, contents).parameters
        found.append({name: own[name] for name in weights.parameters})
    return found


def further_members(saved: SavedRun) -> list[Path]:
    """Return the checkpoints of the members beside the run's own; none of a run that was trained since."""
    if saved.checkpoint.iteration:
        return []
    folders = sorted((saved.path / MEMBERS).glob("[0-9]*"))
    return [path for folder in folders if (path := checkpoints.path_of(folder, 0)).exists()]
