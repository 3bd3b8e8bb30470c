"""What a user asks of a prediction: `Request`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.config.models import AffinityTarget, Config, LsdTarget
from znnpy.data.class_labels import label_type
from znnpy.data.volume import Triple
from znnpy.errors import ConfigError
from znnpy.infer.blocks import Region
from znnpy.infer.predict import FLOAT32
from znnpy.network.types import Node


@dataclass(frozen=True)
class Request:
    """The wishes of a user; None: chosen by znnpy. `roi` in voxels of the first input.

    `patch`: output voxels of a run; where values depend on the patch, of a window. `mirror`: predict all
    voxels, with mirrored data around the volume, not only those that see no border. `grid`: only the
    voxels that a network with true strides gives, not all. `sources`: where the inputs and the mask
    ("mask") lie, for fingerprints. `processes` on this machine share the memory. `first`: write class numbers, of
    which this is the first, instead of values.
    """

    node: Node
    mirror: bool
    roi: Region | None = None
    patch: Triple | None = None
    block: Triple | None = None
    dtype: np.dtype[Any] = FLOAT32
    logits: bool = False
    flips: bool = False
    grid: bool = False
    sources: Mapping[str, Path] | None = None
    processes: int = 1
    first: int | None = None


def request_of(
    config: Config,
    node: Node,
    *,
    labels: bool = False,
    dtype: np.dtype[Any] = FLOAT32,
    sources: Mapping[str, Path] | None = None,
) -> Request:
    """Return the usual request of an output's values, or of class numbers as its `labels` are numbered."""
    mirror = config.data.border == "mirror"
    if not labels:
        return Request(node, mirror, dtype=dtype, sources=sources)
    # As the labels that it learned from are numbered.
    first = getattr(config.target(node.name), "first", 0)
    kind = label_type(first + max(2, node.channels) - 1)
    return Request(node, mirror, dtype=kind, sources=sources, first=first)


def refuse_meaningless(config: Config, request: Request) -> None:
    """Raise ConfigError for flips and class numbers of outputs for which they mean nothing."""
    target = config.target(request.node.name)
    if request.flips and isinstance(target, AffinityTarget | LsdTarget):
        raise ConfigError(
            "flips change what affinities and shape descriptors mean: predict these without them"
        )
    if request.first is not None and isinstance(target, LsdTarget):
        raise ConfigError("shape descriptors are no classes: predict them without --labels")
    if request.first is not None and isinstance(target, AffinityTarget):
        raise ConfigError(
            "affinities are no classes: predict them without --labels, then segment them"
        )
