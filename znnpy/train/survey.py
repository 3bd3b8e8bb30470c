"""Surveys the volumes that a config names: shape, type, range, and whether training and prediction can use them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from math import prod
from typing import Any

from znnpy.config.data_section import Source
from znnpy.config.models import Config, VolumeSection
from znnpy.config.normalize_section import CtNormalize, DeviationNormalize
from znnpy.data.config_volumes import (
    make_targets,
    mode_of,
    open_scene,
    open_source,
    refuse_numbers,
)
from znnpy.data.process_memory import kept_no_longer
from znnpy.data.samples.image_labels import OneEach
from znnpy.data.sampling.label_checks import check_kind, check_labels
from znnpy.data.sampling.patch_positions import mask_shift
from znnpy.data.values.normalization import unlikely
from znnpy.data.values.sampled_range import Glance, glance, is_small
from znnpy.data.volume import Volume
from znnpy.errors import VolumeError, ZnnpyError
from znnpy.geometry.finest_outputs import finest
from znnpy.infer.tiling import Tiling
from znnpy.network import Network
from znnpy.train.patch_sources import make_sampler

DRAWN_VOXELS = (
    1 << 24
)  # of a patch's inputs and targets, up to which one is drawn to see whether it can be


def survey(config: Config, network: Network) -> list[dict[str, Any]]:
    """Return shape, type and range of each volume of `data`, and how many patches fit; JSON-able.

    Reads a bounded part of each and loads nothing. Raises VolumeError with all that is wrong with any of them,
    ConfigError for numbers of `normalize` that suit no input.
    """
    refuse_numbers(config, network)
    config = _unread(config)
    data = config.data
    found, problems = list[dict[str, Any]](), dict[str, None]()
    for key, sections in (
        ("data.train", data.train),
        ("data.validation", data.validation),
        ("data.test", data.test or ()),
    ):
        for index, section in enumerate(sections):
            place = f"{key}.{index}"
            seen, wrong = _each(section, config, place)
            try:
                # A section whose volumes cannot be read has nothing more to say; all other problems
                # are collected, so that one run of the command shows all.
                if not wrong and seen:
                    seen[0] |= _used(section, config, network, key)
            except (ZnnpyError, OSError) as error:
                wrong = [f"{place}: {error}"]
            found += seen
            problems |= dict.fromkeys(wrong)
    if problems:
        raise VolumeError("\n".join(problems))
    return found


def _unread(config: Config) -> Config:
    """Return the config with volumes left in their files, and no statistics over all their voxels."""
    data = config.data.model_copy(update={"in_memory": False})
    if isinstance(data.normalize, CtNormalize):  # its numbers would be those of all labelled voxels
        own = DeviationNormalize(kind="mean_std")
        data = data.model_copy(update={"normalize": own})
    # Counts of classes would read all labels.
    training = config.training.model_copy(update={"rebalance": "none"})
    return config.model_copy(update={"data": data, "training": training})


def _each(
    section: VolumeSection, config: Config, place: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a record of each volume of a section, and all that is wrong with them."""
    found, wrong = [], []
    for key, source in _sources(section):
        try:
            role = "raw" if key.startswith("image") else "labels"
            opened = open_source(source, config.data, role, section)  # type: ignore[arg-type]
            with kept_no_longer(), opened as volume:
                finite = role == "raw" and not config.data.replace_nonfinite
                seen, mode = glance(volume, finite=finite), mode_of(config.data)
                if role == "raw" and (words := unlikely(seen, mode, volume.dtype)):
                    warnings.warn(f"{place}.{key}: {volume.name}: {words}", stacklevel=2)
                _refuse_empty(key, volume, seen)
                found.append(
                    {
                        "key": f"{place}.{key}",
                        "name": volume.name,
                        "shape": volume.shape,
                        "type": str(volume.dtype),
                        "resolution": volume.resolution,
                        "lowest": seen.lowest,
                        "highest": seen.highest,
                        "voxels": seen.voxels,
                        "whole": seen.whole,
                    }
                )
        except (ZnnpyError, OSError) as error:
            wrong.append(f"{place}.{key}: {error}")
    return found, wrong


def _refuse_empty(key: str, volume: Volume, seen: Glance) -> None:
    """Raise VolumeError for a mask without a voxel that counts."""
    if key.startswith("mask") and seen.whole and seen.lowest == seen.highest == 0:
        raise VolumeError(f"{volume.name} is a mask of 0 alone: no voxel counts")


def _sources(section: VolumeSection) -> Iterator[tuple[str, Source]]:
    for key in ("image", "labels", "mask"):
        for node, source in (getattr(section, key) or {}).items():
            yield (f"{key}.{node}" if node else key), source


def _used(section: VolumeSection, config: Config, network: Network, key: str) -> dict[str, int]:
    """Return the `positions` that training patches can have, or the voxels that can be predicted."""
    with ExitStack() as stack:
        stack.enter_context(kept_no_longer())
        scene = open_scene(section, config.data, network)
        stack.callback(scene.close)
        targets = make_targets(config, network)
        for node, labels in scene.labels.items():
            check_kind(targets[node], labels)
            if isinstance(labels, OneEach) or is_small(labels):  # few enough to look at all
                check_labels(targets[node], labels, scene.masks.get(node), mask_shift(scene, node))
        if key != "data.test":
            sampler = make_sampler(
                config, network, [scene], training=key == "data.train", examine=False
            )
            drawn = sum(prod(shape) for shape in sampler.input_shapes.values())
            # With masks a valid place may be far to seek.
            if drawn <= DRAWN_VOXELS and not scene.masks:
                sampler.sample(0)
            return {"positions": sampler.positions}
        return {"positions": prod(Tiling.of(config, finest(network)).field_of(scene, config).shape)}
