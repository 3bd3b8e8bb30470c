"""Configs to start from for a purpose (`znnpy init --for`), fitted to what is known of the data; pure text.

What stands in them was chosen by scores on volumes that the nets never saw (docs/design/recipes.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from znnpy.registry import Registry
from znnpy.train.recipe_sections import (
    Length,
    Seen,
    batch_of,
    data_section,
    last_sections,
    patch_of,
    steps_of,
    training_section,
    unet_section,
)

FEW = 4_000_000  # voxels to train on, below which a batch norm is worth its noise
LITTLE = 2 << 30  # bytes of memory below which patches are a quarter
SLICES = 12  # of a window at most, so that thin volumes fill one: what lies beyond a volume costs more than it shows


@dataclass(frozen=True)
class Recipe:
    """One purpose: `labels` says which labels it needs, `text(seen)` returns its config."""

    name: str
    summary: str
    labels: str
    text: Callable[[Seen], str]


def _of_volumes(
    seen: Seen,
    what: str,
    target: str,
    outputs: int,
    score: str,
    loss: str = "",
    *,
    norm: bool = True,
    plane: bool = False,
    fixed: bool = False,
    prepared: bool = False,
) -> str:
    """Return a config of a U-Net for patches of volumes; `plane`: of each slice by itself, as pictures are anyway."""
    plane = plane or seen.plane
    steps = steps_of(seen, plane=plane)
    wanted = (1, 160, 160) if plane else (12, 64, 64) if seen.flat else (24, 48, 48)
    if seen.memory < LITTLE:
        wanted = (wanted[0], wanted[1] // 2, wanted[2] // 2)
    patch = patch_of(seen, wanted, steps)
    # Wider than in training: fewer voxels near a border.
    window = patch_of(seen, (min(patch[0], SLICES), patch[1] * 2, patch[2] * 2), steps)
    length = Length.of(seen, ITERATIONS, warmup=40, looks=8)
    parts = (
        f"# {what}",
        unet_section(seen, steps, outputs, norm=norm, plane=plane),
        data_section(seen, patch, target, fixed=fixed, prepared=prepared),
        training_section(patch, length, batch_of(seen), score, loss, norm=norm),
        last_sections(window, length),
    )
    return "\n\n".join(parts)


ITERATIONS = 4000


def _membranes(seen: Seen) -> str:
    return _of_volumes(
        seen,
        "Membranes between objects, from which znnpy segment makes the objects",
        "{kind: boundary, thickness: 1}",
        1,
        "average_precision",
        # The noise of a batch norm keeps a net from learning few voxels by heart; it learns many better without.
        norm=seen.extent is not None and prod(seen.extent) < FEW,
        fixed=True,
    )


def _affinities(seen: Seen) -> str:
    far = (max(1, round(6 / seen.ratio)), 6, 6)
    axes = range(1 if seen.plane else 0, 3)
    near = [[-int(a == axis) for a in range(3)] for axis in axes]
    long = [[-far[axis] * int(a == axis) for a in range(3)] for axis in axes]
    offsets = [*near, *(offset for offset in long if offset not in near)]
    return _of_volumes(
        seen,
        "Whether a voxel and its neighbours, near and far, share an object; for znnpy segment",
        f"{{kind: affinity, offsets: {offsets}}}",
        len(offsets),
        "average_precision",
        fixed=True,
    )


def _plane(seen: Seen) -> str:
    return _of_volumes(
        seen,
        "Membranes between objects in images, each slice by itself",
        "{kind: boundary, thickness: 1}",
        1,
        "average_precision",
        plane=True,
        fixed=True,
    )


def _semantic(seen: Seen) -> str:
    if seen.masked:
        what = f"A mask: whether a voxel's label, 0 or {seen.classes - 1}, is above 0"
        return _of_volumes(seen, what, "mask", 1, "average_precision", prepared=True)
    remark = f"\n# {seen.remark}" if seen.remark else ""
    return _of_volumes(
        seen,
        f"Classes of voxels, numbers from 0 to {seen.classes - 1}{remark}",
        "labels",
        seen.classes,
        "dice",
        "  loss: ce_dice                        # cross-entropy and Dice, by which rare classes count\n",
        prepared=True,
    )


def _classification(seen: Seen) -> str:
    layers, size = list[str](), list((seen.extent or (1, 28, 28))[1:])
    channels = 32
    while min(size) > 6:
        # A filter that leaves an even size for the pooling.
        taps = [3 if n % 2 == 0 else 4 for n in size]
        conv = f"{{channels: {channels}, size: [1, {taps[0]}, {taps[1]}], norm: batch, function: relu}}"
        layers += [f"    - conv: {conv}", "    - max_pool: [1, 2, 2]"]
        size = [(n - k + 1) // 2 for n, k in zip(size, taps, strict=True)]
        channels *= 2
    whole = f"[1, {size[0]}, {size[1]}]"
    layers.append(
        f"    - conv: {{channels: 128, size: {whole}, norm: batch, function: relu}}   # fully connected"
    )
    layers.append("    - dropout: 0.5")
    layers.append(f"    - conv: {{channels: {seen.classes}, size: 1}}")
    channels_in = [f"  input: {seen.channels}"] if seen.channels > 1 else []
    length = Length.of(seen, 2000, warmup=20, looks=4)
    network = "\n".join(["network:", *channels_in, "  layers:", *layers])
    parts = (
        f"# Images, slices along z, with a label each: numbers from 0 to {seen.classes - 1}",
        network,
        data_section(seen, (1, 1, 1), "labels"),
        "augment: {enabled: false}              # flipped digits are others",
        f"""\
training:
{length.line}
  batch: 64
  order: shuffled                      # each image once an epoch
  output_shape: 1
  loss: softmax
  optimizer: adamw
  learning_rate: 0.003
  schedule: {{kind: cosine, warmup: {length.warmup}}}
  ema: 0.99
  validation: {{every: {length.every}, patches: 1000, score: accuracy}}""",
        last_sections(None, length),
    )
    return "\n\n".join(parts)


OBJECTS = "numbers of objects"
RECIPES = Registry[Recipe](
    "recipe",
    (
        Recipe("membranes", "boundaries between objects of a volume", OBJECTS, _membranes),
        Recipe("affinities", "which neighbours share an object", OBJECTS, _affinities),
        Recipe("2d", "boundaries, each slice by itself", OBJECTS, _plane),
        Recipe(
            "classification", "a class for each image", "a number for each image", _classification
        ),
        Recipe("semantic", "a class for each voxel", "numbers of classes", _semantic),
    ),
)
