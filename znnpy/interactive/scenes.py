"""Scenes of what calls from Python give: images to predict, or with labels to score against."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Literal

from znnpy.data.config_volumes import scene_of
from znnpy.data.scene import Scene
from znnpy.data.volume import Triple64, Volume
from znnpy.errors import VolumeError
from znnpy.interactive.sources import Image, Images, by_node, opened
from znnpy.network.types import Node
from znnpy.train.start import SavedRun


def inputs_of(
    saved: SavedRun,
    image: Images,
    mask: Image | None,
    stack: ExitStack,
    resolution: Triple64 | None,
) -> Scene:
    """Return images to predict, and a mask, as a scene; files are closed by `stack`. Errors as in `open_inputs`."""
    network = saved.weights.network
    data = saved.config.data.model_copy(update={"in_memory": False})
    images = _volumes(image, network.inputs, "image", stack, data, resolution)
    scene = scene_of(images, {}, {}, data, network)
    if mask is None:
        return scene
    masks = {"mask": opened(mask, "mask", "labels", stack, data, resolution)}
    return Scene(scene.images, {}, masks)


def labelled_of(
    saved: SavedRun,
    image: Images,
    labels: Images,
    mask: Images | None,
    stack: ExitStack,
    resolution: Triple64 | None,
) -> Scene:
    """Return images with labels, and masks, as a scene; files are closed by `stack`. Errors as in `open_scene`."""
    network, data = saved.network, saved.config.data
    groups = [
        {} if given is None else _volumes(given, nodes, what, stack, data, resolution)
        for given, nodes, what in (
            (image, network.inputs, "image"),
            (labels, network.outputs, "labels"),
            (mask, network.outputs, "mask"),
        )
    ]
    return scene_of(groups[0], groups[1], groups[2], data, network)


def _volumes(
    given: Images,
    nodes: tuple[Node, ...],
    what: str,
    stack: ExitStack,
    data: Any,
    resolution: Triple64 | None,
) -> dict[str, Volume]:
    if not isinstance(given, Mapping) and what == "image" and len(nodes) > 1:
        names = ", ".join(node.name for node in nodes)
        raise VolumeError(f"image: the network has several inputs; give a mapping of {names}")
    role: Literal["raw", "labels"] = "raw" if what == "image" else "labels"
    found: dict[int, Volume] = {}
    made = {}
    for name, each in by_node(given, nodes, what).items():
        if id(each) not in found:
            found[id(each)] = opened(each, what, role, stack, data, resolution)
        made[name] = found[id(each)]
    return made
