"""Makes the samplers of training and validation patches from a config, and warns of doubtful labels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from math import inf

from znnpy.config.augment_section import MOVES
from znnpy.config.models import Config, VolumeSection
from znnpy.data.config_volumes import make_targets, mode_of, open_scene, refuse_numbers
from znnpy.data.samples.image_labels import OneEach
from znnpy.data.sampling.augmentation import Augmentation
from znnpy.data.sampling.label_checks import highest, strokes
from znnpy.data.sampling.sample import InputPatch, OutputPatch
from znnpy.data.sampling.sampler import Sampler
from znnpy.data.sampling.targets import ClassesTarget, Target
from znnpy.data.scene import Scene
from znnpy.distributed.world import World
from znnpy.errors import ConfigError
from znnpy.geometry import Geometry, largest, trained_geometry
from znnpy.network import Network, blamed_on_loss, training_losses
from znnpy.network.objectives import refuse_apart

VALIDATION_SEED = 0x56414C  # so that validation draws other patches than training on one volume


def open_sampler(
    stack: ExitStack,
    config: Config,
    network: Network,
    sections: tuple[VolumeSection, ...],
    key: str,
    world: World | None = None,
) -> Sampler:
    """Open the volumes that a key of the config names and return their sampler, closed with the stack.

    `world` as in `Sampler`.
    """
    if not sections:
        raise ConfigError(nothing_in(key))
    scenes = []
    for section in sections:
        scene = open_scene(section, config.data, network)
        stack.callback(scene.close)
        scenes.append(scene)
    return make_sampler(config, network, scenes, training=key == "data.train", world=world)


def nothing_in(key: str) -> str:
    """Return the message for a key of the config that names no volume."""
    return f"{key} names no volume; training needs at least one"


def make_sampler(
    config: Config,
    network: Network,
    scenes: list[Scene],
    *,
    training: bool,
    examine: bool = True,
    world: World | None = None,
) -> Sampler:
    """Return a sampler as the config describes it; validation patches are not augmented, and drawn with another seed.

    `examine` and `world` as in `Sampler`.
    """
    refuse_numbers(config, network)
    section, augment = config.training, config.augment
    geometry = trained_geometry(config, network)
    targets = make_targets(config, network)
    # Warnings before the sampler reads anything: they may explain its errors.
    _doubt_labels(scenes, geometry)
    _doubt_zeros(scenes, targets)
    if training and examine:
        _doubt_classes(scenes, targets)
    with blamed_on_loss(config):
        strides = {name: geometry.output_stride(name) for name in geometry.output_shapes}
        refuse_apart(training_losses(config, network), strides, geometry.output_shapes)
    varied = training and augment.enabled
    _refuse_moves(config, training=varied)
    if training:
        _refuse_foreground(config, targets)
        _doubt_rebalance(config, targets)
    augmentation = Augmentation(
        "".join(augment.flips), augment.swaps, augment if augment.distorts else None
    )
    return Sampler(
        scenes,
        {name: InputPatch(shape) for name, shape in geometry.input_shapes.items()},
        _outputs(targets, geometry),
        augmentation=augmentation if varied else None,
        order=section.order,
        rebalance=section.rebalance,
        normalise=mode_of(config.data),
        replace=config.data.replace_nonfinite,
        mirror=config.data.border == "mirror",
        # XOR with a constant: both are functions of the run's seed, and never equal.
        seed=section.seed if training else section.seed ^ VALIDATION_SEED,
        examine=examine,
        possible=partial(largest, network),
        world=world,
        foreground=section.oversample_foreground if training else 0.0,
    )


def _refuse_foreground(config: Config, targets: Mapping[str, Target]) -> None:
    """Raise ConfigError where patches cannot be centred on foreground."""
    if not config.training.oversample_foreground:
        return
    place = config.place("training", "oversample_foreground")
    if config.training.order == "shuffled":
        raise ConfigError(f"{place}: draws at random; training.order: shuffled takes each once")
    if config.data.shards:
        raise ConfigError(
            f"{place}: draws from whole volumes, not from the blocks of data.shards; leave out either"
        )
    if all(target.values for target in targets.values()):
        raise ConfigError(
            f"{place}: outputs are values of any size, which have no foreground; it needs boundaries, affinities, "
            "masks, classes or probabilities"
        )


def _doubt_rebalance(config: Config, targets: Mapping[str, Target]) -> None:
    """Warn where no output has classes that could be balanced."""
    if config.training.rebalance != "none" and not any(it.balanced for it in targets.values()):
        warnings.warn(
            f"{config.place('training', 'rebalance')}: weighs classes, and shape descriptors have none: it does "
            "nothing here",
            stacklevel=3,
        )


def _refuse_moves(config: Config, *, training: bool) -> None:
    """Raise ConfigError for patches that read beyond the blocks that ranks hold."""
    for key in MOVES if training and config.data.shards else ():
        if getattr(config.augment, key) is not None:
            raise ConfigError(
                f"{config.place('augment', key)}: reads beyond the blocks of data.shards; leave out either"
            )


def _doubt_labels(scenes: list[Scene], geometry: Geometry) -> None:
    """Warn where there is one label for each image, and the network sees several images at once."""
    # Images with one label each are stacked along z, so a network that sees several of them mixes
    # samples.
    deep = max(view[0] for view in geometry.fields_of_view.values())
    each = [it for scene in scenes for it in scene.labels.values() if isinstance(it, OneEach)]
    if deep > 1 and each:
        warnings.warn(
            f"{each[0].name} has a label for each image, but the network sees {deep} of them at once: images lie "
            "along z, where filters, pooling and strides should be 1",
            stacklevel=3,
        )


def _doubt_zeros(scenes: list[Scene], targets: Mapping[str, Target]) -> None:
    """Warn where most of the target seems to be unlabelled voxels."""
    for scene in scenes:
        for node, labels in scene.labels.items():
            taught = targets[node].of_zeros
            # With a mask users have said what counts.
            if not taught or node in scene.masks or isinstance(labels, OneEach):
                continue
            if labels.channels != 1:
                continue
            seen = strokes(labels)
            if seen.drawn if isinstance(targets[node], ClassesTarget) else seen.likely:
                zeros = 1 - seen.labelled / seen.voxels
                warnings.warn(
                    f"{labels.name}: {zeros:.1%} of the labels are 0 and the others thin or few, as if drawn by "
                    f"hand: all these zeros are taught as {taught}. If they are what nobody has labelled, say which "
                    "voxels count by the volume's `mask:` (not 0), which may be these labels; or, where they are "
                    "numbers of classes, take target: {kind: labels, first: 1}",
                    stacklevel=3,
                )


def _doubt_classes(scenes: list[Scene], targets: Mapping[str, Target]) -> None:
    """Warn where the last classes of those that are counted from `first` on seem to have no voxel."""
    for node, target in targets.items():
        # Numbered from 0, a cohort may lack a class that another one has.
        if not isinstance(target, ClassesTarget) or target.first == 0:
            continue
        seen = [highest(target, scene.labels[node]) for scene in scenes if node in scene.labels]
        last, most = target.first + target.classes - 1, max(seen, default=-inf)
        if -inf < most < last:
            warnings.warn(
                f"output {node} has {target.classes} channels, for classes {target.first} to {last}, but the highest "
                f"label found is {most:g}: what has no label is never learned; it needs "
                f"{max(1, int(most) - target.first + 1)} channels, unless the others come later",
                stacklevel=3,
            )


def _outputs(targets: Mapping[str, Target], geometry: Geometry) -> dict[str, OutputPatch]:
    return {
        name: OutputPatch(geometry.output_shapes[name], target, stride=geometry.output_stride(name))
        for name, target in targets.items()
    }
