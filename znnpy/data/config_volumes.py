"""Opens the volumes that a config names, matched to the network's inputs and outputs, and makes their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from znnpy.config.data_section import Source
from znnpy.config.models import (
    AffinityTarget,
    BoundaryTarget,
    Config,
    DataSection,
    ImageTarget,
    LabelsTarget,
    LsdTarget,
    MaskTarget,
    UnknownTarget,
    VolumeSection,
)
from znnpy.config.normalize_section import (
    ClipNormalize,
    CtNormalize,
    DeviationNormalize,
    FixedNormalize,
    GivenNormalize,
    PercentilesNormalize,
    RangeNormalize,
    VolumeNormalize,
)
from znnpy.config.prepare_section import PrepareSection
from znnpy.data.opening import Keep, Role, load, open_volume
from znnpy.data.preparing.scan import prepare, prepared_labels, prepared_volume
from znnpy.data.samples.image_labels import spread
from znnpy.data.sampling import shape_descriptors, targets
from znnpy.data.scene import Scene
from znnpy.data.slices import Slices
from znnpy.data.values.normalization import Clip, Fixed, Mode, normalisation
from znnpy.data.values.own_statistics import Own
from znnpy.data.values.scaling import Normalisation
from znnpy.data.volume import ArrayVolume, Volume
from znnpy.errors import ConfigError, VolumeError
from znnpy.learning.loss import Objective
from znnpy.network import blamed_on_loss, losses_of, training_losses
from znnpy.network.objectives import refuse_untrainable
from znnpy.network.types import Network, Node

STORED = "czyx"
"""Axes of a file that does not name its own."""
_KEEP: Mapping[object, Keep] = {"auto": "auto", True: "memory", False: "file"}


def open_scene(section: VolumeSection, data: DataSection, network: Network) -> Scene:
    """Open one volume of the config with its labels and masks; the caller closes it.

    A bare path stands for the network's only input, or for all outputs. Raises ConfigError when names do not
    fit the network, VolumeError for files that cannot be used, or have other channels than it takes.
    """
    inputs, outputs = network.inputs, network.outputs
    opened: list[Volume] = []
    try:
        groups = []
        for what, sources, nodes, role in (
            ("image", section.image, inputs, "raw"),
            ("labels", section.labels or {}, outputs, "labels"),
            ("mask", section.mask or {}, outputs, "labels"),
        ):
            group: dict[str, Volume] = {}
            shared: dict[Source, Volume] = {}
            for node, source in _by_node(what, sources, nodes).items():
                if source not in shared:
                    shared[source] = open_source(source, data, role, section)  # type: ignore[arg-type]
                    opened.append(shared[source])
                group[node] = shared[source]
            groups.append(group)
        return scene_of(groups[0], groups[1], groups[2], data, network)
    except BaseException:
        for volume in opened:
            volume.close()
        raise


def scene_of(
    images: Mapping[str, Volume],
    labels: Mapping[str, Volume],
    masks: Mapping[str, Volume],
    data: DataSection,
    network: Network,
) -> Scene:
    """Return opened volumes, by node, as one scene, prepared as the data section says. Errors as in `open_scene`."""
    _check_channels(images, network.inputs)
    first = next(iter(images.values()))
    spread_out = ({n: spread(v, first) for n, v in group.items()} for group in (labels, masks))
    scene = Scene(images, *spread_out)
    return scene if data.prepare is None else _prepared(scene, data.prepare)


def _prepared(scene: Scene, section: PrepareSection) -> Scene:
    """Return a scan with its labels and masks as `data.prepare` makes them, in memory; closes the scene."""
    (name, *others) = scene.images
    if others:
        raise ConfigError("data.prepare prepares one image, and the network has several inputs")
    image, made = scene.images[name], dict[int, Volume]()
    prepared = prepare(image, section)
    groups = []
    for group in (scene.labels, scene.masks):
        for volume in group.values():
            if id(volume) not in made:
                made[id(volume)] = prepared_labels(volume, prepared, section)
        groups.append({node: made[id(volume)] for node, volume in group.items()})
    scene.verify()
    found = Scene({name: prepared_volume(prepared, image.name)}, *groups)
    scene.close()
    return found


def open_inputs(section: VolumeSection, data: DataSection, network: Network) -> Scene:
    """Open images for prediction, never loaded whole, and a mask if one is named.

    A mask applies to all outputs. The caller closes the scene. Errors as in `open_scene`.
    """
    data = data.model_copy(update={"in_memory": False})
    scene = open_scene(section.model_copy(update={"mask": None}), data, network)
    if section.mask is None:
        return scene
    try:
        mask = open_source(next(iter(section.mask.values())), data, "labels", section)
        return Scene(scene.images, {}, {"mask": mask})
    except BaseException:
        scene.close()
        raise


def open_source(
    source: Source, data: DataSection, role: Role, section: VolumeSection | None = None
) -> Volume:
    """Open one file as the data section says: in memory or not, with which voxel size.

    Of a `section` with slices those that lie where these are in its first image.
    """
    return load(_part(source, data, role, section), _KEEP[data.in_memory])


def _part(source: Source, data: DataSection, role: Role, section: VolumeSection | None) -> Volume:
    if section is None or section.slices is None:
        return _opened(source, data, role)
    first = next(iter(section.image.values()))
    if role == "raw" and source == first:
        return Slices(_opened(source, data, role), *section.slices)
    with _opened(first, data, "raw") as image:
        return _cut(_opened(source, data, role), section.slices, image)


def _opened(source: Source, data: DataSection, role: Role) -> Volume:
    volume = open_volume(
        source.path,
        source.dataset,
        role=role,
        allow_external=data.allow_external_links,
        allow_filters=data.allow_filters,
        resolution=data.resolution,
    )
    if role == "raw" and volume.unnamed and data.axes != STORED:
        volume = _reordered(volume, data.axes)
    return volume


def _cut(volume: Volume, slices: tuple[int, int], image: Volume) -> Slices:
    """Return the slices of a volume that lie where those of an image do, both of them whole; it closes the volume.

    Raises VolumeError where it has none there, or nothing says where it lies.
    """
    start, stop = slices
    try:
        below, *beside = Scene({"": image}, {"": (whole := spread(volume, image))}).corner(whole)
        if below == 0:
            return Slices(volume, start, stop)
        first, last = max(0, start - below), min(volume.extent[0], stop - below)
        if first >= last:
            raise VolumeError(
                f"{volume.name} has none of the slices [{start}, {stop}] of {image.name}: it begins at {below}"
            )
    except BaseException:
        volume.close()
        raise
    # As if the image began at `start`, which keeps its offset.
    steps = (first + below - start, *beside)
    z, y, x = (
        at + n * size for at, n, size in zip(image.offset, steps, image.resolution, strict=True)
    )
    return Slices(volume, first, last, (z, y, x))


def _reordered(volume: Volume, axes: str) -> Volume:
    """Return a volume whose stored axes are not c, z, y, x, in memory and in that order."""
    loaded = load(volume, "memory")
    order = [axes.index(axis) for axis in "czyx"]
    array = np.ascontiguousarray(loaded.read_all().transpose(order))
    ordered = ArrayVolume(array, loaded.name, loaded.resolution, loaded.placed)
    ordered.directions = loaded.directions
    return ordered


def normalisations(scene: Scene, data: DataSection) -> dict[str, Normalisation]:
    """Return how the config's data section normalises a scene's images, by input node; reads the volumes."""
    return {
        name: normalisation(volume, mode_of(data), replace=data.replace_nonfinite)
        for name, volume in scene.images.items()
    }


def refuse_numbers(config: Config, network: Network) -> None:
    """Raise ConfigError unless numbers of `normalize` are as many as the channels of all inputs, or one for all."""
    given = config.data.normalize
    if not isinstance(given, GivenNormalize):
        return
    for key, numbers in given.model_dump(exclude={"kind"}).items():
        for node in network.inputs:
            if len(numbers) not in (1, node.channels):
                wanted = "one" if node.channels == 1 else f"one, or {node.channels}"
                raise ConfigError(
                    f"{config.place('data', 'normalize', key)}: has {len(numbers)} numbers, but input "
                    f"{node.name!r} takes {node.channels} channel(s): give {wanted}"
                )


def mode_of(data: DataSection) -> Mode:
    """Return how the config's data section normalises volumes."""
    match data.normalize:
        case DeviationNormalize(per="volume", nonzero=False):
            return "mean_std"
        case VolumeNormalize(kind=kind):
            return kind
        case FixedNormalize(mean=mean, deviation=deviation):
            return Fixed(mean, deviation)
        case ClipNormalize(low=low, high=high, mean=mean, deviation=deviation):
            return Clip(mean, deviation, low, high)
        case PercentilesNormalize(low=lower, high=upper, clip=clip) as own:
            return Own(own.kind, lower, upper, clip, own.per == "slice", own.nonzero)
        case DeviationNormalize() | RangeNormalize() as own:
            return Own(own.kind, by_slice=own.per == "slice", nonzero=own.nonzero)
        case CtNormalize():
            raise ConfigError(
                "data.normalize: ct takes its numbers from labelled voxels of data.train when znnpy train begins, and "
                "the run has them as a clip; name a run, or write {kind: clip, low: ..., high: ..., mean: ..., "
                "deviation: ...}"
            )


def make_targets(config: Config, network: Network) -> dict[str, targets.Target]:
    """Return the target of each output node; raise ConfigError when a node has too few or too many channels for it."""
    with blamed_on_loss(config):
        refuse_untrainable(network, losses_of(config, network))
    losses, made = training_losses(config, network), {}
    for node in network.outputs:
        target = _target(config, node, losses[node.name])
        wanted = target.target_channels(node.channels)
        if wanted != node.channels:
            place, own = config.target_place(node.name), f"training.outputs.{node.name}.target"
            other = (
                f"; {own} gives it another one"
                if len(network.outputs) > 1 and not place.endswith(own)
                else ""
            )
            raise ConfigError(
                f"{place}: output {node.name!r} has {node.channels} channel(s), but target "
                f"{config.target(node.name).kind!r} needs {wanted}{other}"
            )
        made[node.name] = target
    return made


def of_values(config: Config, network: Network) -> bool:
    """Return whether outputs are values of any size, none of which is right or wrong."""
    return any(target.values for target in make_targets(config, network).values())


def _target(config: Config, node: Node, objective: Objective) -> targets.Target:
    _refuse_other_neighbours(config, node.name, objective)
    loss, taken = objective.keys.kind, objective.reading.taken(objective.keys.kind)
    match config.target(node.name):
        case BoundaryTarget(thickness=thickness):
            return targets.BoundaryTarget(thickness)
        case AffinityTarget() if objective.reading.whole_voxels:
            raise ConfigError(
                f"{config.loss_place(node.name)}: {loss} lets one channel of a voxel win, but several "
                "affinities may be 1; take binomial_cross_entropy"
            )
        case AffinityTarget(offsets=offsets):
            return targets.AffinityTarget(offsets)
        case LsdTarget() if objective.reading.whole_voxels:
            raise ConfigError(
                f"{config.loss_place(node.name)}: {loss} lets one channel of a voxel win, but shape descriptors "
                "are ten values; take square or binomial_cross_entropy"
            )
        case LsdTarget(sigma=sigma):
            return shape_descriptors.LsdTarget(sigma)
        case LabelsTarget(ignore=ignore, first=first) if objective.reading.whole_voxels:
            return targets.ClassesTarget(node.channels, ignore=ignore, first=first)
        case LabelsTarget(first=first) if first:
            raise ConfigError(
                f"{config.target_place(node.name, 'first')}: {loss} takes labels for values, not for numbers of "
                "classes; take loss: softmax, with an output channel for each class"
            )
        case LabelsTarget(ignore=ignore):
            return targets.ImageTarget(1.0, taken, node.channels, ignore)
        case MaskTarget():
            return targets.MaskTarget(1.0, taken, node.channels)
        case UnknownTarget():
            raise ConfigError(
                f"{config.target_place(node.name)}: is unknown, as the file that the network came from does not say "
                f"what output {node.name!r} learned; say it, such as --set {config.target_key(node.name)}=boundary (or "
                f"affinity, lsd, labels, mask, image), and {config.loss_key(node.name)} with it where the output shows "
                "logits"
            )
        case ImageTarget(scale=scale):
            return targets.ImageTarget(scale, taken, node.channels)


def _refuse_other_neighbours(config: Config, output: str, objective: Objective) -> None:
    target = config.target(output)
    given = target.offsets if isinstance(target, AffinityTarget) else None
    joined = objective.loss.neighbours(objective.keys)
    if joined and joined != given:
        found = "is no affinity" if given is None else f"has offsets {_listed(given)}"
        raise ConfigError(
            f"{config.loss_place(output)}: {objective.loss.name} joins voxels at offsets "
            f"{_listed(joined)}, but the target of {output!r} {found}"
        )


def _listed(offsets: Sequence[Sequence[int]]) -> str:
    return str([list(offset) for offset in offsets])


def _by_node(
    what: str, sources: Mapping[str, Source], nodes: tuple[Node, ...]
) -> dict[str, Source]:
    names = [node.name for node in nodes]
    if set(sources) == {""}:
        if len(names) == 1 or what != "image":
            return dict.fromkeys(names, sources[""])
        raise ConfigError(
            f"data: {what} must be a mapping from node to path, the network has {', '.join(names)}"
        )
    unknown = sorted(set(sources) - set(names))
    if unknown:
        raise ConfigError(
            f"data: {what} names {', '.join(unknown)}; the network has {', '.join(names)}"
        )
    return {name: sources[name] for name in names if name in sources}


def _check_channels(images: Mapping[str, Volume], nodes: tuple[Node, ...]) -> None:
    for node in nodes:
        if node.name not in images:
            raise ConfigError(f"data: no image for input {node.name!r}")
        volume = images[node.name]
        if volume.channels != node.channels:
            raise VolumeError(
                f"{volume.name} has {volume.channels} channel(s), but input {node.name!r} takes "
                f"{node.channels} channel(s); axes are z, y, x, with channels before them (c, z, y, x) unless "
                f"data.axes says otherwise, and there are {volume.extent} voxels (z, y, x)"
            )
