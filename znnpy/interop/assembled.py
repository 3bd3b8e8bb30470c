"""Puts together what a source found: a net, how its images are prepared, and sizes of patches, as a model of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from znnpy.errors import ModelFileError, ShapeError
from znnpy.geometry import fit
from znnpy.interop.model import ImportedModel
from znnpy.interop.operators.described import Described
from znnpy.interop.operators.training import target_for, training_keys


def assembled(
    title: str, found: Described, data: Mapping[str, Any], *, window: Sequence[int] | None = None,
    inference: Mapping[str, Any] | None = None, training: Mapping[str, Any] | None = None, notes: Sequence[str] = (),
    where: str = "",
) -> ImportedModel:  # fmt: skip
    """Return the model of one net. `data`, `inference`, `training`: keys beside, or instead of, what the net says.

    `window`: voxels (z, y, x) of patches and windows; ModelFileError, which begins with `where`, if the net makes no
    such output.
    """
    keys: dict[str, Any] = training_keys(found, fixed=False)
    config: dict[str, Any] = {
        "network": dict(found.section),
        "data": {"target": target_for(found.network), **data},
        "training": keys,
    }
    if window is not None:
        size = list(window)
        try:
            fit(found.network, (size[0], size[1], size[2]))
        except ShapeError as error:
            raise ModelFileError(f"{where}: windows of {size} voxels (z, y, x): {error}") from error
        keys["output_shape"] = size
        inference = {"window": size, **(inference or {})}
    if inference:
        config["inference"] = dict(inference)
    keys.update(training or {})
    members = {"weights": lambda: found.parameters}
    return ImportedModel(title, config, members, [*notes, *found.notes], found.origin)
