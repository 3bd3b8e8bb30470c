"""The registry of segmentation methods: names, options, memory and functions that find objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from znnpy.registry import Registry

TILE = (128, 256, 256)
SURER = 0.4  # share of the threshold below which seeds of fragments lie: fragments cost little, wrong ones stay
HALO = 24  # voxels around a tile that are flooded with it: about as wide as large neurites
Kind = Literal["boundary", "foreground", "affinity"]
"""What a prediction shows."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One segmentation method.

    `summary`: for the help of `--method`. `find(values, kind, threshold, offsets, min_size)`, or "module:name" of
    it: returns new labels uint32 or uint64 (z, y, x), 0 unassigned, for probabilities float32 (C, z, y, x). C is 1
    but for affinities, whose `offsets` are (z, y, x); objects of fewer than `min_size` voxels are dropped afterwards
    too. `voxel_bytes`, `channel_bytes`: peak memory a voxel beside the probabilities, and more for each channel.
    `blocks(values, numbering)` instead of `find`: returns labels uint8 or uint16 (z, y, x), as a
    `znnpy.data.class_labels.Numbering` has them, for channels as they are stored, of a part of the volume that depends
    on no other; they are written block by block, restartable, whatever the memory. `thresholds`: the usual ones that
    are not 0.5. `kinds`: the predictions it takes.
    `title`: its name in errors. `by_size`: `find` takes the voxel size too, `resolution=` (z, y, x).
    `join(graph, wanted)`: returns for each fragment of a `RegionGraph`, after 0 for none, a number (int64)
    that those of its object share; such methods work block by block, beyond memory, by tiles of `tile` voxels (z, y, x)
    and `halo` around them. `histograms`: it wants those of faces. `cut(tiling, place, read, wanted)`: returns the
    fragments of a tile; `meet(tiling, place, read, fragments, wanted)`, if any, its `Bonds` for the graph;
    `grow(tiling, place, read, seeds, wanted)`, if any, the labels of a tile from the objects of the graph.
    `ready(wanted)`: raises VolumeError before anything is made where a library is missing or a prediction is not taken.
    `begins`: the share of the level of boundaries at which objects end, below which one begins; None: there is no such.
    """

    name: str
    summary: str
    find: Any
    voxel_bytes: float
    channel_bytes: float = 0
    thresholds: Mapping[Kind, float] = field(default_factory=dict)
    kinds: tuple[Kind, ...] = ("boundary", "foreground", "affinity")
    title: str = ""
    blocks: Any = None
    by_size: bool = False
    join: Any = None
    histograms: bool = False
    ready: Any = None
    cut: Any = "znnpy.segment.tiles:cut"
    meet: Any = None
    grow: Any = None
    tile: tuple[int, int, int] = TILE
    halo: int = HALO
    begins: float | None = None


# The first that takes a prediction is the usual one. Peak bytes as measured on noise. Seeds of a watershed are
# surer, as what lies between is grown into anyway.
METHODS = Registry[Method](
    "segmentation method",
    (
        Method(
            name="agglomerate",
            summary="fragments of a watershed from the places farthest from boundaries, joined where the mean boundary "
            "between them is low; thick sections each by itself, by the voxel size",
            find="znnpy.segment.methods:agglomerate",
            join="znnpy.segment.methods:by_mean",
            voxel_bytes=100,
            kinds=("boundary", "affinity"),
            by_size=True,
            begins=SURER,
        ),
        Method(
            name="median",
            summary="the same fragments, joined by the median boundary between them",
            find="znnpy.segment.methods:median",
            join="znnpy.segment.methods:by_mean",
            histograms=True,
            voxel_bytes=100,
            kinds=("boundary", "affinity"),
            by_size=True,
            begins=SURER,
        ),
        Method(
            name="multicut",
            summary="the same fragments, cut apart where that costs least in all",
            find="znnpy.segment.methods:multicut",
            join="znnpy.segment.methods:by_cuts",
            ready="znnpy.segment.methods:solver_ready",
            voxel_bytes=100,
            kinds=("boundary", "affinity"),
            by_size=True,
            begins=SURER,
        ),
        Method(
            name="components",
            summary="voxels joined over faces",
            find="znnpy.segment.methods:components",
            cut="znnpy.segment.component_tiles:cut",
            join="znnpy.segment.component_tiles:by_touch",
            halo=0,
            voxel_bytes=30,
            begins=1.0,
        ),
        Method(
            name="watershed",
            summary="components grown over the boundary map until they meet",
            find="znnpy.segment.methods:watershed",
            cut="znnpy.segment.component_tiles:cut_seeds",
            join="znnpy.segment.component_tiles:by_touch",
            grow="znnpy.segment.growing:grown",
            voxel_bytes=60,
            begins=1.0,
            thresholds={"boundary": 0.2, "foreground": 0.8, "affinity": 0.8},
        ),
        Method(
            name="mutex",
            summary="mutex watershed of affinities with long offsets",
            find="znnpy.segment.methods:mutex",
            cut="znnpy.segment.mutex_tiles:cut",
            meet="znnpy.segment.mutex_tiles:met",
            join="znnpy.segment.mutex_tiles:by_mutex",
            ready="znnpy.segment.mutex_tiles:ready",
            tile=(48, 128, 128),
            halo=12,
            voxel_bytes=0,
            channel_bytes=100,
            kinds=("affinity",),
            title="the mutex watershed",
        ),
        Method(
            name="classes",
            summary="number of the channel that is largest, or, of one channel, 1 above a half, or of regions that "
            "overlap (--regions); written block by block",
            find=None,
            blocks="znnpy.data.class_labels:predicted_labels",
            voxel_bytes=0,
            title="a map of classes",
        ),
    ),
)
