"""Plans a prediction to a file before it begins: field, region, patch, blocks, memory, output (`plan_job`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from znnpy.config.models import AffinityTarget, BoundaryTarget, MaskTarget
from znnpy.data.config_volumes import normalisations
from znnpy.data.process_memory import readable
from znnpy.data.scene import Scene
from znnpy.data.values.scaling import Normalisation
from znnpy.data.volume import Triple, directions_attribute
from znnpy.data.writing.block_output import OutputSpec, aligned_phase, begun
from znnpy.errors import PlanError, ShapeError
from znnpy.infer.blocks import Field, Region, region_of_interest, sub, triple
from znnpy.infer.config_model import Weights
from znnpy.infer.default_patch import Chosen, chosen_patch, patch_of, warnings_of
from znnpy.infer.memory import Sizes, block_bytes, default_limit, needed_bytes, process_bytes
from znnpy.infer.patch_search import Candidate, Needs, best_patch, counted_workers
from znnpy.infer.predict import Finish
from znnpy.infer.provenance import identity_record, norms_record, patch_key, plan_record
from znnpy.infer.request import Request, refuse_meaningless
from znnpy.infer.tiling import AnyGrid, Tiling
from znnpy.network import training_losses
from znnpy.network.dense_conversion import densest
from znnpy.network.types import Network

# Larger: more is computed again after a kill, and more memory is bound. Smaller: syncs take a share
# of the time.
WRITTEN = 8 << 20  # bytes of output that a block should have, so that writing it is worth a sync
LARGEST_SHARE = 8  # blocks, and remembered patches, may each take 1 / 8 of the memory; patches use the rest better


@dataclass(frozen=True)
class Job:
    """A planned prediction: `network` is what runs, `region` the voxels of `field` that are written.

    `kept`: number of patches that are remembered. `notes`: lines for the user. `usual`: the patch that the run
    shall remember, by what it depends on; None where that is known, or not this job's to decide.
    """

    weights: Weights
    network: Network
    scene: Scene
    field: Field
    region: Region
    request: Request
    candidate: Candidate
    tiling: Tiling
    grid: AnyGrid
    spec: OutputSpec
    norms: Mapping[str, Normalisation]
    kept: int
    memory: int
    limit: int
    notes: tuple[str, ...] = ()
    usual: Mapping[str, Any] | None = None

    @property
    def patch(self) -> Triple:
        """The output voxels of one network run."""
        return self.candidate.patch

    @property
    def engine_bytes(self) -> int:
        """The bytes that the engine may take: what it needs, and what nothing else takes of the limit."""
        return self.candidate.bytes(counted_workers()) + max(0, self.limit - self.memory)

    @property
    def finish(self) -> Finish:
        """The conversion of output values to what is written."""
        losses = training_losses(self.weights.config, self.weights.network)
        reading = None if self.request.logits else losses[self.request.node.name].reading
        return Finish(reading, self.request.dtype, self.request.flips, self.request.numbering)

    @cached_property
    def order(self) -> list[Region]:
        """Return the blocks in voxels of the field, in the order that computes the fewest patches twice."""
        low = self.region.lower
        return self.grid.order([Region(*ends).moved(low) for ends in self.spec.blocks()])

    def placed(self, block: Region) -> tuple[Triple, Triple]:
        """Return where a block of the field lies in the output."""
        return sub(block.lower, self.region.lower), sub(block.upper, self.region.lower)

    @property
    def runs(self) -> int:
        """The number of network runs of the whole prediction, given the patches remembered between blocks."""
        flips = 2 ** sum(v > 1 for v in self.view) if self.request.flips else 1
        return self.grid.runs(self.region, self.spec.block, self.spec.phase, self.kept) * flips

    @property
    def halo(self) -> Triple:
        """The voxels that a run needs of the inputs around those that its output voxels show."""
        geometry, stride = self.candidate.geometry, self.field.stride
        most = triple(max(axis) for axis in zip(*geometry.input_shapes.values(), strict=True))
        steps = zip(most, self.patch, stride, strict=True)
        return triple(max(0, n - (count - 1) * step - 1) for n, count, step in steps)

    @property
    def view(self) -> Triple:
        """The receptive field (field of view) of all inputs together."""
        views = self.candidate.geometry.fields_of_view.values()
        return triple(max(axis) for axis in zip(*views, strict=True))


def plan_job(
    weights: Weights,
    scene: Scene,
    request: Request,
    path: Path | None,
    attributes: Mapping[str, Any] | None = None,
    patches: Mapping[str, Any] = MappingProxyType({}),
) -> Job:
    """Plan a prediction; one that was begun at `path` with these weights is resumed as it was planned.

    `path`: None for one into memory. `patches`: those that the run remembers (`Job.usual`). Raises PlanError when it
    does not fit into run.max_memory (default: a share of the machine's memory), ShapeError for volumes and regions that
    are too small.
    """
    config = weights.config
    refuse_meaningless(config, weights.network, request)
    # Strides become sparsity, so that every voxel is predicted (docs/design/inference.md,
    # "Pooling").
    network = weights.network if request.grid else densest(weights.network)
    corners = {name: scene.corner(volume) for name, volume in scene.images.items()}
    tiling = Tiling.of(config, network, request.patch)
    field = tiling.field(scene.images, corners, request.mirror)
    _refuse_beyond(request.roi, scene)
    region = region_of_interest(field, request.roi)
    identity = identity_record(weights, network, scene, request)
    # What an earlier process wrote into the journal; patch and block are taken over if it was of
    # the same weights.
    before = (begun(path) if path else None) or {}
    known = before if before.get("weights") == identity["weights"] else {}
    request = replace(
        request,
        patch=tiling.window or request.patch or patch_of(known.get("patch")),
        block=request.block or patch_of(known.get("block")),
    )
    # What the process takes already counts towards the limit, as the limit is for all of it.
    sizes, base = _sizes(tiling, scene, field, request), process_bytes()
    usual_limit = default_limit(base)
    # `usual_limit` is not divided: patches must not depend on how many processes share the work.
    limit = (config.run.max_memory or usual_limit) // request.processes

    def needs(candidate: Candidate) -> int:
        block = request.block or sizes.grid(candidate).unit
        return base + needed_bytes(sizes, candidate, within(block, region))

    key = patch_key(weights, field, region, request)
    # First the patch, then blocks of whole patches in what is left, then patches to remember in
    # what is left of that.
    chosen = _chosen(
        network,
        weights,
        region,
        request,
        known,
        patches.get(key),
        needs,
        usual_limit,
        limit,
        tiling.window is not None,
    )
    candidate, grid = chosen.candidate, sizes.grid(chosen.candidate)
    block = request.block or _block(candidate, region, sizes, limit - base)
    phase = aligned_phase(path, region.lower, block) if path else (0, 0, 0)
    memory = base + needed_bytes(sizes, candidate, within(block, region))
    kept = _kept(candidate, grid.shared(region, block, phase), sizes, limit, limit - memory)
    memory = base + needed_bytes(sizes, candidate, within(block, region), kept)
    norms = normalisations(scene, config.data)
    # Everything that decides a bit is in the journal, so that a rerun that differs is refused.
    identity |= {
        "patch": list(candidate.patch),
        "plan": plan_record(candidate.plan),
        "windows": tiling.record(),
        "normalise": norms_record(norms),
        "region": [list(region.lower), list(region.upper), list(field.first), list(field.stride)],
    }
    shown = {**place(scene, field, region), "patch": list(candidate.patch), **(attributes or {})}
    labels = request.numbering is not None
    shape = (1 if labels else request.node.channels, *region.shape)
    spec = OutputSpec(shape, request.dtype, block, shown, identity, phase, channels=not labels)
    return Job(
        weights,
        network,
        scene,
        field,
        region,
        request,
        candidate,
        tiling,
        grid,
        spec,
        norms,
        kept,
        memory,
        limit,
        (*_cut_off(weights, request), *chosen.notes, *warnings_of(memory, request.processes)),
        None if chosen.record is None else {key: chosen.record},
    )


def _cut_off(weights: Weights, request: Request) -> tuple[str, ...]:
    """Return a note that uint8 would clip values that are not probabilities, if so."""
    config, probable = weights.config, (AffinityTarget, BoundaryTarget, MaskTarget)
    reading = training_losses(config, weights.network)[request.node.name].reading
    if (
        request.dtype != np.uint8
        or request.numbering is not None
        or reading.functions
        or isinstance(config.target(request.node.name), probable)
    ):
        return ()
    kind = config.target(request.node.name).kind
    return (
        f"uint8 holds 0 to 1 as 0 to 255, and values beyond are cut off there; this network's may be any, as its "
        f"target ({kind}) and loss take any: write float32 unless they lie in 0 to 1",
    )


def place(scene: Scene, field: Field, region: Region) -> dict[str, Any]:
    """Return the attributes `resolution` and `offset` (z, y, x, nanometres) of what is predicted.

    And `directions`, as in `znnpy.data.flat.geometry`, of a scan.
    """
    first, step = scene.reference, field.stride
    voxel = first.resolution
    corner = [a + i * n for a, i, n in zip(field.first, region.lower, step, strict=True)]
    return {
        "resolution": [size * n for size, n in zip(voxel, step, strict=True)],
        "offset": [o + size * a for o, size, a in zip(first.offset, voxel, corner, strict=True)],
        **directions_attribute(first),
    }


def within(block: Triple, region: Region) -> Triple:
    """Return a block no larger than a region."""
    return triple(min(pair) for pair in zip(block, region.shape, strict=True))


def _refuse_beyond(roi: Region | None, scene: Scene) -> None:
    """Refuse a region that leaves the volume: it is a slip, often of the order of axes."""
    volume = scene.reference
    if roi is not None and any(b > n for b, n in zip(roi.upper, volume.extent, strict=True)):
        raise ShapeError(
            f"--roi goes to {roi.upper} (z, y, x), but {volume.name} has only {volume.extent} voxels"
        )


def _sizes(tiling: Tiling, scene: Scene, field: Field, request: Request) -> Sizes:
    stored = {n: v.channels * v.dtype.itemsize for n, v in scene.images.items()}
    images = sum(node.channels for node in tiling.network.outputs)
    written = images if request.numbering is None else len(tiling.network.outputs)
    written *= request.dtype.itemsize
    return Sizes(tiling, field, stored, written, images, bool(scene.masks))


def _chosen(
    network: Network,
    weights: Weights,
    region: Region,
    request: Request,
    begun: Mapping[str, Any],
    remembered: Any,
    needs: Needs,
    usual_limit: int,
    limit: int,
    windows: bool,
) -> Chosen:
    """Return the patch asked for or begun with, if it fits, or the run's usual one."""
    conv = weights.config.training.conv

    def search(most: int) -> Candidate:
        return best_patch(network, region, conv, needs, most)

    if request.patch is None:
        return chosen_patch(remembered, network, conv, region, search, needs, usual_limit, limit)
    found = Candidate(network, request.patch, conv, begun.get("plan"))
    # To plan what is hopeless anyway could take hours.
    hopeless = found.least_bytes > limit
    takes = found.least_bytes if hopeless else needs(found)
    if takes <= limit:
        return Chosen(found)
    what = "windows" if windows else "patches"
    would = (
        f"give --max-memory {-(-takes // (1 << 20))}MiB or more, or smaller windows "
        "(inference.window), which make other values"
        if windows
        else f"patches of {search(limit).patch} would fit"
    )
    raise PlanError(
        f"{what} of {found.patch} voxels (z, y, x) take {'at least ' * hopeless}{readable(takes)} of memory, "
        f"and {readable(limit)} are allowed; {would}"
    )


def _block(candidate: Candidate, region: Region, sizes: Sizes, room: int) -> Triple:
    """Return a block of whole patches: grown along x, then y, then z, until it is worth a sync or memory is used up."""
    unit, counts = sizes.grid(candidate).unit, [1, 1, 1]
    rest = room - needed_bytes(sizes, candidate, within(unit, region))
    most = max(0, min(rest, room // LARGEST_SHARE))
    spent = block_bytes(sizes, candidate, within(unit, region))
    # x first: rows of a file are contiguous along it.
    for axis in (2, 1, 0):
        while counts[axis] * unit[axis] < region.shape[axis]:
            counts[axis] += 1
            block = triple(n * step for n, step in zip(counts, unit, strict=True))
            written = sizes.written * math.prod(block)
            more = block_bytes(sizes, candidate, within(block, region)) - spent
            # The last step was one too many.
            if more > most or written > WRITTEN:
                counts[axis] -= 1
                return triple(n * step for n, step in zip(counts, unit, strict=True))
    return triple(n * step for n, step in zip(counts, unit, strict=True))


def _kept(candidate: Candidate, most: int, sizes: Sizes, limit: int, room: int) -> int:
    """Return how many patches to remember of the `most` that several blocks share."""
    each = sizes.kept * math.prod(candidate.patch)
    # At least one: a patch that ends in two blocks would else be computed twice in a row.
    return min(most, max(1, min(limit // LARGEST_SHARE, room) // each))
