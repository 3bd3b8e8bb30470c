"""Configs to start from for a purpose (`znnpy init --for`), fitted to what is known of the data; pure text.

What stands in them was chosen by scores on volumes that the nets never saw (docs/design/recipes.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, prod

from znnpy.registry import Registry

Triple = tuple[int, int, int]
FLAT = 2.5  # voxels so many times longer along z than along y and x: nets begin within sections
THIN = 8  # slices below which nothing is pooled along z
VALIDATED = 0.15  # share of the slices that validate where there are enough of them
FEW = 4_000_000  # voxels to train on, below which a batch norm is worth its noise
LITTLE = 2 << 30  # bytes of memory below which patches are a quarter
SLICES = 12  # of a window at most, so that thin volumes fill one: what lies beyond a volume costs more than it shows


@dataclass(frozen=True)
class Seen:
    """What is known of the data: sources as a config names them, and what was found there.

    `extent` (z, y, x) of the image, None if it is not known, `resolution` in nanometres; `classes`: numbers from 0 on
    that the labels have; `shares`: of their voxels, by name; `greys`: mean and deviation of each channel of an image of
    bytes, none of others; `cores` and bytes of `memory` of this machine.
    """

    image: str = "train.h5:raw"
    labels: str = "train.h5:labels"
    extent: Triple | None = None
    resolution: tuple[float, float, float] = (1.0, 1.0, 1.0)
    channels: int = 1
    classes: int = 2
    shares: Mapping[str, float] = field(default_factory=dict)
    greys: tuple[tuple[float, float], ...] = ()
    cores: int = 1
    memory: int = 1 << 40

    @property
    def ratio(self) -> float:
        """How many times longer a voxel is along z than along y and x."""
        return self.resolution[0] / max(self.resolution[1:])

    @property
    def flat(self) -> bool:
        """Whether slices are thick sections."""
        return self.ratio >= FLAT


@dataclass(frozen=True)
class Recipe:
    """One purpose: `labels` says which labels it needs, `text(seen)` returns its config."""

    name: str
    summary: str
    labels: str
    text: Callable[[Seen], str]


def _steps(seen: Seen, *, plane: bool) -> list[Triple]:
    """Return the factors of two steps down: along z only once voxels have become about as long as wide."""
    thin = plane or (seen.extent is not None and seen.extent[0] < THIN)
    steps, ratio = list[Triple](), float("inf") if thin else seen.ratio
    for _ in range(2):
        steps.append((1 if ratio >= FLAT else 2, 2, 2))
        ratio /= 2 / steps[-1][0]
    return steps


def _patch(seen: Seen, wanted: Triple, steps: list[Triple]) -> Triple:
    """Return the wanted patch, smaller where the volume is, of whole steps."""
    sizes = []
    for axis, size in enumerate(wanted):
        factor = steps[0][axis] * steps[1][axis]
        most = size if seen.extent is None else min(size, seen.extent[axis])
        sizes.append(max(1, most // factor) * factor)
    return sizes[0], sizes[1], sizes[2]


def _split(seen: Seen, patch: Triple) -> tuple[str, str]:
    """Return what selects the slices of training and of validation; nothing where there are too few."""
    if seen.extent is None:
        return "", ""
    depth = seen.extent[0]
    last = max(patch[0], ceil(VALIDATED * depth))
    if depth < 3 * last:
        return "", ""
    return f", slices: [0, {depth - last}]", f", slices: [{depth - last}, {depth}]"


def _normalize(seen: Seen) -> list[str]:
    """Return the lines by which greys mean the same in all volumes; none where they may not."""
    if not seen.greys or min(deviation for _, deviation in seen.greys) <= 0:
        return []
    mean, deviation = (
        shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"
        for shown in (
            [f"{number:.6g}" for number in column] for column in zip(*seen.greys, strict=True)
        )
    )
    return [
        "  # Of this image, for all volumes: membranes are as dark where there are fewer. Volumes of another contrast",
        "  # need mean_std instead.",
        f"  normalize: {{kind: fixed, mean: {mean}, deviation: {deviation}}}",
    ]


def _data(seen: Seen, patch: Triple, target: str, *, fixed: bool = False) -> str:
    train, held = _split(seen, patch)
    entry = f"{{image: {_quoted(seen.image)}, labels: {_quoted(seen.labels)}"
    lines = ["data:", f"  train: [{entry}{train}}}]"]
    if held:
        lines.append(
            "  # The net never learns from these slices; what it says of them tells which weights are best."
        )
        lines.append(f"  validation: [{entry}{held}}}]")
    else:
        lines.append(
            "  # validation: [{image: FILE, labels: FILE}]   # to see how good it is on others"
        )
    lines.append(f"  target: {target}{_shares(seen)}")
    lines += _normalize(seen) if fixed else []
    if seen.resolution == (1.0, 1.0, 1.0):
        lines.append(
            "  # resolution: [40, 4, 4]           # nanometres z y x, which the file does not say"
        )
    return "\n".join(lines)


def _quoted(source: str) -> str:
    """Return a source as YAML's flow style takes it, whatever is in its name."""
    return '"' + source.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _shares(seen: Seen) -> str:
    found = ", ".join(f"{share:.0%} {name}" for name, share in seen.shares.items())
    return f"   # of the voxels: {found}" if found else ""


def _unet(
    seen: Seen, steps: list[Triple], outputs: int, *, norm: bool = True, plane: bool = False
) -> str:
    each = [list(step) for step in steps]
    down = str(each[0] if each[0] == each[1] else each)
    lines = [
        "network:",
        "  unet:",
        *([f"    input: {seen.channels}"] if seen.channels > 1 else []),
        "    widths: [16, 32, 48]               # channels of each level; 16 fill a vector",
        f"    down: {down:<29}# factors of a step to the next level, z y x",
        f"    stem: {'[1, 5, 5]' if plane or seen.flat else '5':<29}# one large filter on the raw image costs little",
        *(["    size: [1, 3, 3]                    # each slice by itself"] if plane else []),
        *(
            ["    first_size: [1, 3, 3]              # blocks begin within thick sections"]
            if seen.flat and not plane
            else []
        ),
        "    convs: 3",
        "    block: residual",
        "    up: linear",
        "    join: sum",
        *(["    norm: batch"] if norm else []),
        "    function: silu                     # smooth: no channel dies"
        + ("" if norm else ", and without a norm training sees what prediction sees"),
        *([f"    outputs: {outputs}"] if outputs > 1 else []),
    ]
    return "\n".join(lines)


def _training(
    patch: Triple, iterations: int, batch: int, score: str, loss: str = "", *, norm: bool = True
) -> str:
    # Without a norm one patch early on can push a net to where it says the same of all voxels for good.
    clip = "" if norm else "  clip_norm: 1                         # no single patch undoes all\n"
    return f"""\
training:
  iterations: {iterations:<25}# more are better, if slowly
  output_shape: {list(patch)}
  batch: {batch}
{loss}  optimizer: adamw
  learning_rate: 0.003
{clip}  schedule: {{kind: cosine, warmup: {max(1, iterations // 40)}}}
  ema: 0.99                            # the mean of the last hundred weights is validated and predicted from
  validation: {{every: {max(1, iterations // 8)}, score: {score}}}"""


def _batch(seen: Seen) -> int:
    """Return the patches of an update: more where more cores are to be kept busy."""
    return min(4, max(1, seen.cores // 16))


def _rest(window: Triple | None) -> str:
    lines = [] if window is None else ["inference:", f"  window: {list(window)}", ""]
    return "\n".join([*lines, "run: {directory: run, checkpoint: {every: 500}}", ""])


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
) -> str:
    """Return a config of a U-Net for patches of volumes."""
    steps = _steps(seen, plane=plane)
    wanted = (1, 160, 160) if plane else (12, 64, 64) if seen.flat else (24, 48, 48)
    if seen.memory < LITTLE:
        wanted = (wanted[0], wanted[1] // 2, wanted[2] // 2)
    patch = _patch(seen, wanted, steps)
    # Wider than in training: fewer voxels near a border.
    window = _patch(seen, (min(patch[0], SLICES), patch[1] * 2, patch[2] * 2), steps)
    parts = (
        f"# {what}",
        _unet(seen, steps, outputs, norm=norm, plane=plane),
        _data(seen, patch, target, fixed=fixed),
        _training(patch, ITERATIONS, _batch(seen), score, loss, norm=norm),
        _rest(window),
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
    near = [[-int(a == axis) for a in range(3)] for axis in range(3)]
    long = [[-far[axis] * int(a == axis) for a in range(3)] for axis in range(3)]
    offsets = [*near, *(offset for offset in long if offset not in near)]
    return _of_volumes(
        seen,
        "Whether a voxel and its neighbours, near and far, share an object; for znnpy segment",
        f"{{kind: affinity, offsets: {offsets}}}",
        len(offsets),
        "average_precision",
    )


def _plane(seen: Seen) -> str:
    return _of_volumes(
        seen,
        "Membranes between objects in images, each slice by itself",
        "{kind: boundary, thickness: 1}",
        1,
        "average_precision",
        plane=True,
    )


def _semantic(seen: Seen) -> str:
    return _of_volumes(
        seen,
        f"Classes of voxels, numbers from 0 to {seen.classes - 1}",
        "labels",
        seen.classes,
        "dice",
        "  loss: ce_dice                        # cross-entropy and Dice, by which rare classes count\n",
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
    network = "\n".join(["network:", *channels_in, "  layers:", *layers])
    parts = (
        f"# Images, slices along z, with a label each: numbers from 0 to {seen.classes - 1}",
        network,
        _data(seen, (1, 1, 1), "labels"),
        "augment: {enabled: false}              # flipped digits are others",
        """\
training:
  iterations: 2000
  batch: 64
  order: shuffled                      # each image once an epoch
  output_shape: 1
  loss: softmax
  optimizer: adamw
  learning_rate: 0.003
  schedule: {kind: cosine, warmup: 100}
  ema: 0.99
  validation: {every: 500, patches: 1000, score: accuracy}""",
        _rest(None),
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
