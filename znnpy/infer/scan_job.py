"""Predicts scans case by case with one model, and writes labels or logits where each scan lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from znnpy.config.models import Config
from znnpy.data.config_volumes import normalisations
from znnpy.data.preparing.scan import Prepared, prepare, prepared_volume
from znnpy.data.process_memory import (
    available,
    available_memory,
    map_large_arrays,
    readable,
)
from znnpy.data.scene import Scene
from znnpy.data.volume import Array, Volume, place_attributes
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.preflight import refuse_loss
from znnpy.engine.progress import Report
from znnpy.errors import ConfigError, PlanError
from znnpy.geometry.shape_inference import fit
from znnpy.infer.config_model import Weights, patch_model
from znnpy.infer.memory import process_bytes
from znnpy.infer.request import numbering_of, refuse_overlap
from znnpy.infer.scans import (
    Arrays,
    Progress,
    ScanModel,
    flips_of,
    labelled,
    logits_of,
    rows_together,
    windows_of,
)
from znnpy.infer.shared_passes import shared_pass
from znnpy.infer.window_sums import kept_planes
from znnpy.meanwhile import meanwhile
from znnpy.network.folding import fold, folded
from znnpy.network.joins_as_sums import Sums, joins_as_sums
from znnpy.network.pooling_first import pooling_first
from znnpy.network.shortcuts_again import Repeated, shortcuts_again
from znnpy.network.types import Network, Triple


@contextmanager
def scan_model(
    weights: Weights,
    members: Sequence[Callable[[], Arrays]],
    report: Report | None = None,
    *,
    logits: bool = False,
    extent: Triple | None = None,
) -> Iterator[ScanModel]:
    """Yield the model of a run for windows, whose members' logits are averaged; each reads its weights.

    Of `weights` the parameters are not used. `logits`: no labels are asked of it. `extent`: voxels z, y, x of a scan
    that is to come: passes have room for an equal part of its windows, on which last bits may depend; others may have
    more.
    """
    config, window = weights.config, window_of(weights.config)
    _refuse_network(weights, logits=logits)
    map_large_arrays()
    sums = joins_as_sums(pooling_first(weights.network))
    again = shortcuts_again(sums.network)
    # Folded here, a model keeps no copy of what its filters were made of; in float64 it folds by itself.
    network = folded(again.network) if config.training.precision == "float32" else again.network
    flips = flips_of(config)
    mirrored = 1 << len(flips)
    planned, plan = shared_pass(network, fit(network, window), config.training.conv, mirrored)
    record = plan.to_record()
    batch = _filled(planned, _windows(extent, window), mirrored) if extent else planned
    with patch_model(
        config, network, window, record, report=report, lean=True, batch=batch
    ) as model:
        split = [partial(_changed, (sums, again), network, member) for member in members]
        yield ScanModel(model, split, flips, planned)


def _windows(extent: Triple, window: Triple) -> int:
    """Return how many windows cover a scan of so many voxels at least."""
    return prod(-(-voxels // size) for voxels, size in zip(extent, window, strict=True))


def _filled(planned: int, windows: int, mirrored: int) -> int:
    """Return the fewest images of a pass with which so many windows take no more passes than planned."""
    each = planned // mirrored
    if not each:
        return planned
    passes = -(-windows // each)
    return -(-windows // passes) * mirrored


def _changed(
    steps: tuple[Sums, Repeated], network: Network, member: Callable[[], Arrays]
) -> dict[str, Any]:
    """Return a member's parameters for `network`, which is that of the last step or what is left when it is folded."""
    sums, again = steps
    # No name is given to what is folded: it would all be kept until the end.
    if network is again.network:
        return again.parameters(sums.parameters(member()))
    return fold(again.network, again.parameters(sums.parameters(member())))


def _refuse_network(weights: Weights, *, logits: bool) -> None:
    """Raise ConfigError where the network has other inputs or outputs than the config says, or they are no labels."""
    config, network = weights.config, weights.network
    if len(network.inputs) != 1 or len(network.outputs) != 1:
        raise ConfigError(
            f"{config.place('data', 'prepare')}: scans are prepared for networks of one input and one output"
        )
    (node,) = network.outputs
    if not logits:
        refuse_overlap(config, network, node, numbering_of(config, node))


def window_of(config: Config) -> tuple[int, int, int]:
    """Return the voxels of a window, z, y, x."""
    return config.inference.window or config.training.output_shape


def predict_scan(
    model: ScanModel,
    volume: Volume,
    weights: Weights,
    destination: Destination,
    attributes: Mapping[str, Any],
    *,
    logits: bool = False,
    progress: Progress | None = None,
) -> tuple[int, ...]:
    """Write the labels (z, y, x) of a scan, or its logits (k, z, y, x); return the shape of what was written.

    Raises VolumeError where the output is in the way, WriteError where it cannot be written,
    PlanError where memory does not suffice.
    """
    destination.refuse_standing()
    refuse_loss(destination, [volume])
    found = scan_values(model, volume, weights, logits=logits, progress=progress)
    shown = {
        **place_attributes(volume),
        **attributes,
    }
    destination.write(found, shown)
    return found.shape


def scan_values(
    model: ScanModel,
    volume: Volume,
    weights: Weights,
    *,
    logits: bool = False,
    progress: Progress | None = None,
) -> Array:
    """Return the labels (z, y, x) of a scan, or its logits (k, z, y, x); PlanError where memory does not suffice."""
    config = weights.config
    assert config.data.prepare is not None
    # Threads of BLAS wait by spinning, and resampling takes 3 times as long where cores are not free.
    with threadpool_limits(limits=1, user_api="blas"):
        with meanwhile(model.begin):
            prepared = _normalised(prepare(volume, config.data.prepare), volume.name, config)
            volume.verify()
        _refuse_memory(model, prepared, weights, logits=logits)
        return (logits_of if logits else labelled)(model, prepared, config, progress)


def _normalised(prepared: Prepared, name: str, config: Config) -> Prepared:
    """Return a scan as `data.normalize` makes it, where `data.prepare` does not normalise."""
    if config.data.normalize.kind == "none":
        return prepared
    scene = Scene({"scan": prepared_volume(prepared, name)}, {})
    norm = normalisations(scene, config.data)["scan"]
    planes = np.arange(prepared.array.shape[1])
    return replace(prepared, array=norm.apply(prepared.array, planes=planes))


def needed_bytes(model: ScanModel, prepared: Prepared, config: Config, *, logits: bool) -> int:
    """Return the bytes that predicting a prepared scan takes beside the model and the scan itself."""
    windows = windows_of(config, prepared)
    voxels = prod(windows.extent[1:]) * kept_planes(windows, rows_together(model, windows))
    # What windows of a pass say: they overlap, so that it may be more than the planes that they lie in.
    said = prod(windows.size) * min(model.at_once, prod(map(len, windows.starts)))
    sums = 4 * ((model.channels + 1) * voxels + model.channels * max(voxels, said))
    written = 4 * model.channels if logits else 1
    return sums + 2 * written * prod(prepared.whole)


def _refuse_memory(model: ScanModel, prepared: Prepared, weights: Weights, *, logits: bool) -> None:
    needed, free = needed_bytes(model, prepared, weights.config, logits=logits), available_memory()
    most = weights.config.run.max_memory
    what = (
        f"a scan of {prepared.array.shape[1:]} voxels (z, y, x) at its network's voxel size needs "
        f"{readable(needed)} more"
    )
    if needed > free:
        raise PlanError(f"{what}, but only {available(free)}")
    if most is not None and needed + process_bytes() > most:
        raise PlanError(
            f"{what} than the {readable(process_bytes())} that this process has, and --max-memory is {readable(most)}"
        )
