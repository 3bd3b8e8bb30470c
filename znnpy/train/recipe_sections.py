"""The sections of configs that recipes write (`recipes.py`), fitted to what is known of the data; pure text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

Triple = tuple[int, int, int]
FLAT = 2.5  # voxels so many times longer along z than along y and x: nets begin within sections
THIN = 8  # slices below which nothing is pooled along z
MANY = 32  # numbers of labels from which on they may be those of objects, not of classes
MOSTLY = 0.95  # share of voxels labelled 0 from which on it may mean that they are not labelled
VALIDATED = 0.15  # share of the slices that validate where there are enough of them


@dataclass(frozen=True)
class Seen:
    """What is known of the data: sources as a config names them, and what was found there.

    `extent` (z, y, x) of the image, None if it is not known, `resolution` in nanometres; `classes`: numbers from 0 on
    that the labels have; `shares`: of their voxels, by name; `greys`: mean and deviation of each channel of an image of
    bytes, none of others; `cores` and bytes of `memory` of this machine; `updates`: so many are wanted, with the words
    that say why; None: as many as is usual. `several`: sources are patterns or folders of volumes, of which `extent` is
    the least; `spacing`: the median of their voxel sizes, where these differ, else None.
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
    updates: tuple[int, str] | None = None
    several: bool = False
    spacing: tuple[float, float, float] | None = None

    @property
    def ratio(self) -> float:
        """How many times longer a voxel is along z than along y and x."""
        return self.resolution[0] / max(self.resolution[1:])

    @property
    def masked(self) -> bool:
        """Whether labels hold two numbers, 0 and one above 1, as masks in pictures do."""
        return self.classes > 2 and set(self.shares) == {"class 0", f"class {self.classes - 1}"}

    @property
    def scribbled(self) -> bool:
        """Whether so few voxels have another number than 0 that it may mean that a voxel is not labelled."""
        return self.shares.get("class 0", 0.0) >= MOSTLY

    @property
    def remark(self) -> str:
        """What is to be said where labels have so many classes that they may be objects; else empty."""
        if self.classes <= MANY or self.masked:
            return ""
        return f"labels hold numbers up to {self.classes - 1}; if these are objects, not classes, take --for membranes"

    @property
    def flat(self) -> bool:
        """Whether slices are thick sections."""
        return self.ratio >= FLAT

    @property
    def plane(self) -> bool:
        """Whether images are pictures, volumes of one slice: filters along z would see nothing."""
        return self.extent is not None and self.extent[0] == 1


def steps_of(seen: Seen, *, plane: bool) -> list[Triple]:
    """Return the factors of two steps down: along z only once voxels have become about as long as wide."""
    thin = plane or (seen.extent is not None and seen.extent[0] < THIN)
    steps, ratio = list[Triple](), float("inf") if thin else seen.ratio
    for _ in range(2):
        steps.append((1 if ratio >= FLAT else 2, 2, 2))
        ratio /= 2 / steps[-1][0]
    return steps


def patch_of(seen: Seen, wanted: Triple, steps: list[Triple]) -> Triple:
    """Return the wanted patch, smaller where the volume is, of whole steps."""
    sizes = []
    for axis, size in enumerate(wanted):
        factor = steps[0][axis] * steps[1][axis]
        most = size if seen.extent is None else min(size, seen.extent[axis])
        sizes.append(max(1, most // factor) * factor)
    return sizes[0], sizes[1], sizes[2]


def _split(seen: Seen, patch: Triple) -> tuple[str, str]:
    """Return what selects the slices of training and of validation; nothing where there are too few."""
    if seen.extent is None or seen.several:
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


def _prepare(seen: Seen) -> list[str]:
    """Return the lines by which all volumes get voxels of one size; none where they have it."""
    if seen.spacing is None:
        return []
    size = ", ".join(f"{n:.0f}" if n >= 1e5 else f"{n:.7g}" for n in seen.spacing)
    return [
        "  # Volumes have voxels of several sizes: they are resampled to the median, nanometres z y x, and predictions",
        "  # come back in each volume's own voxels.",
        f"  prepare: {{spacing: [{size}], crop: false}}",
    ]


def data_section(
    seen: Seen, patch: Triple, target: str, *, fixed: bool = False, prepared: bool = False
) -> str:
    """Return `data`; `fixed`: with the image's greys for all volumes, where they are known; `prepared`: resampled."""
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
    if target == "labels" and seen.scribbled:
        lines.append(
            "  # target: {kind: labels, first: 1}   # if 0 means not labelled, as in scribbles; with "
            f"{'one output' if seen.classes == 2 else f'outputs: {seen.classes - 1}'}"
        )
    lines += _normalize(seen) if fixed else []
    lines += _prepare(seen) if prepared else []
    if seen.resolution == (1.0, 1.0, 1.0):
        lines.append(
            "  # resolution: [40, 4, 4]           # nanometres z y x, which the file does not say"
        )
    return "\n".join(lines)


def _quoted(source: str) -> str:
    """Return a source as YAML's flow style takes it, whatever is in its name."""
    return '"' + source.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _shares(seen: Seen) -> str:
    found = ", ".join(f"{_percent(share)} {name}" for name, share in seen.shares.items())
    return f"   # of the voxels: {found}" if found else ""


def _percent(share: float) -> str:
    """Return a share in per cent, with a digit where none would show that there are some, or others."""
    near = min(share, 1 - share)
    return f"{share:.0%}" if near in (0, 1) or near >= 0.005 else f"{share:.2%}"


def unet_section(
    seen: Seen, steps: list[Triple], outputs: int, *, norm: bool = True, plane: bool = False
) -> str:
    """Return `network`: a U-Net of these steps down; `plane`: of each slice by itself."""
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


@dataclass(frozen=True)
class Length:
    """How long is trained: updates, and the lines of a config that follow from their number."""

    updates: int
    words: str
    warmup: int
    every: int
    saved: int

    @classmethod
    def of(cls, seen: Seen, usual: int, *, warmup: int, looks: int) -> Length:
        """Return as many updates as are wanted, else the usual ones.

        `warmup`: what share of them the rate rises for, as a divisor; `looks`: validations.
        """
        updates, words = seen.updates or (usual, "more are better, if slowly")
        every = max(1, updates // looks)
        saved = 500 if seen.updates is None else every
        return cls(updates, words, max(1, updates // warmup), every, saved)

    @property
    def line(self) -> str:
        """The key `iterations`."""
        return f"  iterations: {self.updates:<25}# {self.words}"


def training_section(
    patch: Triple, length: Length, batch: int, score: str, loss: str = "", *, norm: bool = True
) -> str:
    """Return `training`; `norm`: whether the net has one."""
    # Without a norm one patch early on can push a net to where it says the same of all voxels for good.
    clip = "" if norm else "  clip_norm: 1                         # no single patch undoes all\n"
    return f"""\
training:
{length.line}
  output_shape: {list(patch)}
  batch: {batch}
{loss}  optimizer: adamw
  learning_rate: 0.003
{clip}  schedule: {{kind: cosine, warmup: {length.warmup}}}
  ema: 0.99                            # the mean of the last hundred weights is validated and predicted from
  validation: {{every: {length.every}, score: {score}}}"""


def batch_of(seen: Seen) -> int:
    """Return the patches of an update: more where more cores are to be kept busy."""
    return min(4, max(1, seen.cores // 16))


def last_sections(window: Triple | None, length: Length) -> str:
    """Return `inference`, where there is a window, and `run`."""
    lines = [] if window is None else ["inference:", f"  window: {list(window)}", ""]
    run = f"run: {{directory: run, checkpoint: {{every: {length.saved}}}}}"
    return "\n".join([*lines, run, ""])
