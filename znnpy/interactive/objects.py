"""Segments arrays or files into objects, and scores objects against labels, as the commands of these names do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Triple, Triple64, Volume
from znnpy.errors import VolumeError
from znnpy.evaluation.objects import (
    TITLES,
    Row,
    read_pair,
    score_classes,
    score_each,
    score_objects,
    score_sections,
)
from znnpy.fields import shown
from znnpy.interactive import html
from znnpy.interactive.numbers import count_of, probability_of, three_of
from znnpy.interactive.sources import Image, opened
from znnpy.pictures.panels import Panel, figure_of
from znnpy.segment.job import Request
from znnpy.segment.job import segment as find
from znnpy.segment.method import Kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Objects:
    """Objects of a volume: `labels` uint64 (z, y, x), numbered from 1, 0 where there is none; `sizes` in voxels.

    `method` and `threshold`: how they were found. An array in NumPy's functions; a picture in a notebook.
    """

    def __init__(
        self, labels: NDArray[np.uint64], sizes: NDArray[np.int64], method: str, threshold: float
    ) -> None:
        self.labels, self.sizes, self.method, self.threshold = labels, sizes, method, threshold

    def __len__(self) -> int:
        return len(self.sizes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.labels, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        share = self.sizes.sum() / self.labels.size
        many = f"{len(self):,} object{'s' * (len(self) != 1)}"
        shape = tuple(self.labels.shape)
        return f"{many} of {shape} voxels (z, y, x), {share:.1%} of them, by {self.method}"

    def figure(self, z: int | None = None) -> Figure:
        """Return a figure of matplotlib of one slice, the middle one if `z` is None."""
        from znnpy.pictures.colours import object_colours

        index = len(self.labels) // 2 if z is None else z
        ids = self.labels[index]
        return figure_of([Panel("objects", object_colours(ids))], f"slice z = {index}")

    def _repr_html_(self) -> str:
        return str(html.picture(self.figure(), repr(self)) + html.line(repr(self)))


class Scored(dict[Any, Any]):
    """Scores by name, or, of several sections or classes, by these; a table in a notebook."""

    def _repr_html_(self) -> str:
        several = all(isinstance(row, dict) for row in self.values())
        rows: dict[Any, Row] = dict(self) if several else {"": dict(self)}
        names = [str(name) for name in rows]
        titles = dict.fromkeys(score for row in rows.values() for score in row)
        lines = [[TITLES[it].strip(), *(_text(row[it]) for row in rows.values())] for it in titles]
        return str(html.table("scores of objects", ["", *names], lines))


def segment(
    prediction: Image,
    *,
    method: str | None = None,
    kind: Kind | None = None,
    threshold: float | None = None,
    min_size: int = 0,
    channels: Sequence[int] = (),
    offsets: Sequence[Triple] | None = None,
    resolution: Triple64 | None = None,
) -> Objects:
    """Find the objects of a prediction, as `znnpy segment` does, in memory.

    `prediction`: probabilities (z, y, x) or (channel, z, y, x), an array or `FILE:DATASET`. `method` and
    `kind` (boundary, foreground, affinity) as those of the command, `threshold` too; objects of fewer than `min_size`
    voxels are dropped. For arrays, `offsets` (z, y, x) say which neighbours the channels are affinities to, and
    `resolution` (z, y, x, nanometres) how large a voxel is. Raises VolumeError for what cannot be segmented,
    ZnnpyError for a method that there is not.
    """
    if threshold is not None:
        threshold = probability_of("threshold", threshold)
    min_size = count_of("min_size", min_size)
    if method is not None and not isinstance(method, str):
        raise VolumeError(f"method: must be the name of one; found {shown(method)}")
    chosen: Any = channels
    if isinstance(chosen, str) or not isinstance(chosen, Sequence | np.ndarray):
        raise VolumeError(f"channels: must be a list of numbers from 0 on; found {shown(chosen)}")
    channels = [count_of("channels", channel) for channel in channels]
    if kind is not None and kind not in get_args(Kind):
        raise VolumeError(f"kind: must be one of {', '.join(get_args(Kind))}; found {kind!r}")
    with ExitStack() as stack:
        volume = opened(prediction, "prediction", "raw", stack, resolution=resolution)
        neighbours = volume.neighbours
        try:
            _name_neighbours(volume, offsets)
            found = find(volume, Request(method, kind, threshold, min_size, tuple(channels)))
        finally:
            volume.neighbours = neighbours  # the volume may be the caller's
    return Objects(found.labels, found.sizes, found.method, found.threshold)


def score(
    objects: Image | Objects,
    labels: Image,
    *,
    mask: Image | None = None,
    by: Literal["section", "class", "object"] | None = None,
) -> Scored:
    """Score objects against labels (0: unknown), as `znnpy score` does; both (z, y, x), arrays or `FILE:DATASET`.

    Returns scores by name: adapted Rand error, VOI in bits, CREMI score, average precision over IoU. `by` section:
    such scores for each z. `by` object: splits, merges and best IoU
    of each of the truth. `by` class: numbers are classes, 0 too, and each has Dice, IoU and HD95. `mask`: voxels
    that count. Raises VolumeError where these are no labels, or have no voxel in common.
    """
    if by not in (None, "section", "class", "object"):
        raise VolumeError(f"by: must be 'section', 'class' or 'object'; found {by!r}")
    given = objects.labels if isinstance(objects, Objects) else objects
    with ExitStack() as stack:
        volumes = [
            opened(image, what, "labels", stack)
            for image, what in ((given, "objects"), (labels, "labels"), (mask, "mask"))
            if image is not None
        ]
        pair = read_pair(*volumes)
    if by == "class":
        return Scored(score_classes(pair))
    if by == "object":
        return Scored(score_each(pair))
    return Scored(score_objects(pair) if by is None else score_sections(pair))


def _name_neighbours(volume: Volume, offsets: Sequence[Triple] | None) -> None:
    if offsets is None:
        return
    # Whole numbers alone: a part of a voxel would be cut off, and another neighbour be meant.
    given: Any = offsets
    listed = given.tolist() if isinstance(given, np.ndarray) else given
    steps = [three_of(it, int) for it in listed] if isinstance(listed, Sequence) else []
    found = tuple(step for step in steps if step is not None)
    if len(found) != len(steps) or len(steps) != volume.channels:
        raise VolumeError(
            f"offsets: must be {volume.channels} of whole numbers z, y, x, one for each channel; found {shown(offsets)}"
        )
    volume.neighbours = found


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
