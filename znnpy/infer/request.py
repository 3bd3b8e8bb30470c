"""What a user asks of a prediction: `Request`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.config.models import AffinityTarget, Config, LsdTarget, MaskTarget
from znnpy.data.class_labels import Numbering
from znnpy.data.volume import Triple
from znnpy.errors import ConfigError
from znnpy.infer.blocks import Region
from znnpy.infer.predict import FLOAT32
from znnpy.network import training_losses
from znnpy.network.types import Network, Node


@dataclass(frozen=True)
class Request:
    """The wishes of a user; None: chosen by znnpy. `roi` in voxels of the first input.

    `patch`: output voxels of a run; where values depend on the patch, of a window. `mirror`: predict all
    voxels, with mirrored data around the volume, not only those that see no border. `grid`: only the
    voxels that a network with true strides gives, not all. `sources`: where the inputs and the mask
    ("mask") lie, for fingerprints. `processes` on this machine share the memory. `numbering`: write class numbers
    instead of values.
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
    numbering: Numbering | None = None


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
    numbering = numbering_of(config, node)
    return Request(
        node, mirror, dtype=numbering.type(node.channels), sources=sources, numbering=numbering
    )


def numbering_of(config: Config, node: Node) -> Numbering:
    """Return how channels of an output are numbered: as `inference.regions` says, or as labels that it learned from."""
    target, regions = config.target(node.name), config.inference.regions
    if regions is None:
        return Numbering(getattr(target, "first", 0))
    if len(regions) != node.channels:
        raise ConfigError(
            f"{config.place('inference', 'regions')}: must name {node.channels} labels, one for each output channel; "
            f"found {len(regions)}"
        )
    return Numbering(regions=regions)


def refuse_meaningless(config: Config, network: Network, request: Request) -> None:
    """Raise ConfigError for flips and class numbers of outputs for which they mean nothing."""
    target = config.target(request.node.name)
    if request.flips and isinstance(target, AffinityTarget | LsdTarget):
        raise ConfigError(
            "flips change what affinities and shape descriptors mean: predict these without them"
        )
    if request.numbering is not None and isinstance(target, LsdTarget):
        raise ConfigError("shape descriptors are no classes: predict them without --labels")
    if request.numbering is not None and isinstance(target, AffinityTarget):
        raise ConfigError(
            "affinities are no classes: predict them without --labels, then segment them"
        )
    if request.numbering is not None:
        refuse_overlap(config, network, request.node, request.numbering)


def refuse_overlap(config: Config, network: Network, node: Node, numbering: Numbering) -> None:
    """Raise ConfigError for channels of which none wins, and whose labels nobody has said."""
    if numbering.regions is not None or node.channels < 2:
        return
    if not isinstance(config.target(node.name), MaskTarget):
        return
    if not training_losses(config, network)[node.name].reading.whole_voxels:
        numbers = ",".join(map(str, range(1, node.channels + 1)))
        raise ConfigError(
            f"the channels of {node.name!r} are masks that may overlap, of which none wins: say the label that each "
            f"paints, later ones over earlier ones, such as --set inference.regions=[{numbers}]"
        )
