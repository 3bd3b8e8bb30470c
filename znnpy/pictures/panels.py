"""Lays out slices side by side in one PNG: titles, a scale bar, pixels in the proportions of voxels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from znnpy.atomic_files import explained, replacing
from znnpy.errors import ShapeError, VolumeError
from znnpy.pictures.colours import are_shares, object_colours, overlay, share_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]
Titles = tuple[str, str, str]
# Inches of the longer side of a panel; wide slices are stacked, others stand in a row.
PANEL = 5.0
MAP = "magma"


@dataclass(frozen=True)
class Panel:
    """A slice to show: grey or mapped (height, width), or colours (height, width, 3), all 0 to 1.

    `bar` explains a probability map by a bar of its colours; `note` is a second line of the title.
    """

    title: str
    image: Array
    bar: bool = False
    note: str = ""


@dataclass(frozen=True)
class Voxels:
    """Size of a pixel of a slice, vertical and horizontal, and the axes' names.

    In nanometres if that is `known`, else in voxels.
    """

    size: tuple[float, float] = (1.0, 1.0)
    axes: tuple[str, str] = ("y", "x")
    known: bool = False


def side_by_side(
    path: str | Path,
    raw: Array,
    label: Array,
    prediction: Array,
    objects: Array | None = None,
    *,
    z: int | None = None,
    titles: Titles = ("raw", "label", "prediction"),
    caption: str = "",
    voxels: Voxels | None = None,
    span: tuple[float, float] = (0, 1),
) -> None:
    """Write a PNG of slice `z` (the middle one if None) of three volumes of the same z, y, x.

    Each is (z, y, x) or (C, z, y, x). One channel is grey: the raw image over its own range, label
    and prediction over `span`; three channels (affinities z, y, x) are red, green and blue; other
    numbers of channels have the colours of classes, mixed, if they are shares of one whole, else
    show their mean. Integer labels with more than two values get one colour per object, and so do
    `objects` (z, y, x), a fourth panel over the raw image. Raises ShapeError if the volumes differ
    in z, y, x.
    """
    panels = slice_panels(raw, label, prediction, objects, z=z, titles=titles, span=span)
    index = np.shape(raw)[-3] // 2 if z is None else z
    draw(Path(path), panels, caption or f"slice z = {index}", voxels)


def slice_panels(
    raw: Array,
    label: Array,
    prediction: Array,
    objects: Array | None = None,
    *,
    z: int | None = None,
    titles: Titles = ("raw", "label", "prediction"),
    span: tuple[float, float] = (0, 1),
) -> list[Panel]:
    """Return the panels of `side_by_side`."""
    volumes = [_four(volume) for volume in (raw, label, prediction)]
    if len({volume.shape[1:] for volume in volumes}) > 1:
        shapes = ", ".join(str(volume.shape[1:]) for volume in volumes)
        raise ShapeError(f"raw, label and prediction must cover the same z, y, x; got {shapes}")
    index = volumes[0].shape[1] // 2 if z is None else z
    images = [
        stretched(as_image(volumes[0][:, index])),
        _label(volumes[1][:, index], span),
        stretched(as_image(volumes[2][:, index]), span),
    ]
    panels = [Panel(title, image) for title, image in zip(titles, images, strict=True)]
    if objects is not None:
        panels.append(Panel("objects", overlay(stretched(volumes[0][0, index]), objects[index])))
    return panels


def draw(path: Path, panels: Sequence[Panel], caption: str, voxels: Voxels | None = None) -> None:
    """Write panels of one shape as a PNG, atomically; raises VolumeError if the disk fails."""
    figure = figure_of(panels, caption, voxels)
    with explained(path, VolumeError), replacing(path) as new:
        write_png(figure, new)


def write_png(figure: Figure, file: Path | BinaryIO) -> None:
    """Write a figure as `savefig` does, which draws all twice: first to lay it out, as drawing does itself."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).print_png(file)


def figure_of(panels: Sequence[Panel], caption: str, voxels: Voxels | None = None) -> Figure:
    """Return panels of one shape as a figure of matplotlib, drawn nowhere yet."""
    return _figure(panels, caption, voxels or Voxels())


def as_image(image: Array) -> Array:
    """Return (C, y, x) as grey (y, x) or colour (y, x, 3): three channels, or shares of classes; float32."""
    values = image.astype(np.float32)
    if len(values) == 3:
        return np.moveaxis(values, 0, -1)
    return share_colours(values) if are_shares(values) else values.mean(axis=0)


def stretched(image: Array, limits: tuple[float, float] | None = None) -> Array:
    """Return grey values scaled to 0 to 1 between two limits, or between an image's own `percentiles`."""
    low, high = limits or percentiles(image)
    grey: Array = (image.astype(np.float32) - low) / max(float(high - low), 1e-6)
    return np.clip(grey, 0, 1)


def percentiles(image: Array) -> tuple[float, float]:
    """Return the 0.5th and 99.5th percentile of an image."""
    # NumPy subtracts neighbours, but no truth values.
    values = image.view(np.uint8) if image.dtype == np.bool_ else image
    low, high = np.percentile(values, (0.5, 99.5))
    return float(low), float(high)


def scale_bar(width: float) -> float:
    """Return a round length, 1, 2 or 5 times a power of ten, between a tenth and a third of `width`."""
    power = 10.0 ** np.floor(np.log10(width / 3))
    return float(max(n * power for n in (1, 2, 5) if n * power <= width / 3))


def length(nanometres: float) -> str:
    """Return a length as text."""
    unit, size = unit_of(nanometres)
    return f"{nanometres / size:g} {unit}"


def unit_of(nanometres: float) -> tuple[str, float]:
    """Return the unit in which a length is said, and its nanometres."""
    units = (("mm", 1e6), ("µm", 1e3))
    return next(((unit, size) for unit, size in units if nanometres >= size), ("nm", 1.0))


def _four(volume: Array) -> Array:
    if volume.ndim not in (3, 4):
        raise ShapeError(f"expected (z, y, x) or (c, z, y, x), got shape {volume.shape}")
    return volume if volume.ndim == 4 else volume[None]


def _label(image: Array, span: tuple[float, float]) -> Array:
    if len(image) == 1 and image.dtype.kind in "ui" and image.max() > 1:
        return object_colours(image[0])
    return stretched(as_image(image), span)


def _figure(panels: Sequence[Panel], caption: str, voxels: Voxels) -> Figure:
    from matplotlib.figure import Figure  # takes a second, and writes into the home directory

    rows, columns = panels[0].image.shape[:2]
    high, wide = rows * voxels.size[0], columns * voxels.size[1]
    scale = PANEL / max(high, wide)
    down, across = _grid(len(panels), wide > 1.5 * high)
    size = (
        across * (max(wide * scale, 1.6) + (0.9 if any(p.bar for p in panels) else 0.3)),
        down * (max(high * scale, 0.6) + 0.55) + 0.5,
    )
    figure = Figure(
        figsize=size, dpi=_dots(rows, columns, high * scale, wide * scale), layout="constrained"
    )
    figure.suptitle(caption, fontsize=10)
    axes = np.ravel(figure.subplots(down, across, squeeze=False))
    for axis, panel in zip(axes, panels, strict=False):
        _show(figure, axis, panel, voxels)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    _label_axes(axes[0], voxels)
    _add_bar(axes[0], columns, voxels)
    return figure


def _grid(count: int, wide: bool) -> tuple[int, int]:
    """Return rows and columns: up to three panels in a line, more in a block."""
    if count <= 3:
        return (count, 1) if wide else (1, count)
    columns = 2 if count == 4 else 3
    return -(-count // columns), columns


def _dots(rows: int, columns: int, high: float, wide: float) -> float:
    """Return dots per inch at which no voxel is lost, within limits on the size of the file."""
    return float(np.clip(max(rows / high, columns / wide), 120, 320))


def _show(figure: Figure, axis: Axes, panel: Panel, voxels: Voxels) -> None:
    mapping = MAP if panel.bar else "gray"
    aspect = voxels.size[0] / voxels.size[1]
    shown = axis.imshow(
        panel.image, cmap=mapping, vmin=0, vmax=1, interpolation="nearest", aspect=aspect
    )
    title = f"{panel.title}\n{panel.note}" if panel.note else panel.title
    axis.set_title(title, fontsize=10)
    axis.set_xticks([])
    axis.set_yticks([])
    for side in axis.spines.values():
        side.set_linewidth(0.5)
    if panel.bar:
        bar = figure.colorbar(shown, ax=axis, fraction=0.04, pad=0.02, ticks=[0, 0.5, 1])
        bar.ax.tick_params(labelsize=8)


def _label_axes(axis: Axes, voxels: Voxels) -> None:
    axis.set_ylabel(f"{voxels.axes[0]} ↓", fontsize=9, rotation=0, labelpad=8)
    axis.set_xlabel(f"{voxels.axes[1]} →", fontsize=9)


def _add_bar(axis: Axes, columns: int, voxels: Voxels) -> None:
    """Draw a black scale bar on white in the lower left corner, its length beside it."""
    whole = columns * voxels.size[1]
    wanted = scale_bar(whole) if voxels.known else max(1.0, scale_bar(whole))
    share = wanted / whole
    text = length(wanted) if voxels.known else f"{wanted:g} voxels"
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2.5}
    axis.text(
        0.03, 0.045, text, transform=axis.transAxes, fontsize=8, va="bottom", ha="left", bbox=box
    )
    for colour, thickness in (("white", 4), ("black", 2)):
        axis.plot(
            [0.03, 0.03 + share],
            [0.03, 0.03],
            transform=axis.transAxes,
            color=colour,
            linewidth=thickness,
            solid_capstyle="butt",
        )
