"""Draws how one patch is distorted, and distorts its images; sections move while images and labels are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from znnpy.config.augment_section import AugmentSection
from znnpy.config.distortion_section import Distortion, ShiftSection, Whole
from znnpy.data.sampling.draws import Draws
from znnpy.data.sampling.intensities import (
    Float32,
    Number,
    bent,
    blurred,
    brightened,
    coarser,
    contrasted,
    noisy,
)
from znnpy.data.sampling.placed import Placed
from znnpy.data.sampling.position_index import minus, plus
from znnpy.data.sampling.warps import Region, Warp, draw_warp
from znnpy.data.volume import Triple, Triple64

Span = tuple[int, int]
Shift = tuple[int, int]
Change = Callable[[Float32, Number, Triple64], Float32]

MORE = 1.5  # times the voxels of a region: to read so many costs less than to find places again


@dataclass(frozen=True)
class Drawn:
    """How one patch is distorted. Places are voxels z, y, x of the scene, before the patch is turned.

    `moved`: sections and how far along y and x they read beside their place. `missing`: sections; `dark`: a section,
    factor and shift; `boxes`: what is left out; `warp`: where all is read, and `made`: places that are known. `draws`
    say what is done to values, image by image.
    """

    settings: AugmentSection
    draws: Draws
    moved: tuple[tuple[Span, Shift], ...] = ()
    missing: Span = (0, 0)
    dark: tuple[int, float, float] | None = None
    boxes: tuple[Region, ...] = ()
    warp: Warp | None = None
    made: dict[Region, Placed] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        settings: AugmentSection,
        random: np.random.Generator,
        lower: Triple,
        extent: Triple,
        resolution: Triple64 = (1.0, 1.0, 1.0),
    ) -> Drawn:
        """Draw the distortions of a patch that begins at `lower`; all that happen elsewhere are drawn, too.

        `resolution`: nanometres of a voxel along z, y, x.
        """
        draws, z, deep = Draws(random), lower[0], extent[0]
        moved = []
        if found := _chosen(settings.step, draws):
            # From the second section on: a step before the first one moves all of them.
            first = z + draws.whole(1, max(2, deep))
            moved.append(((first, 1 << 60), _shift(found, draws)))
        if found := _chosen(settings.slip, draws):
            first = z + draws.whole(0, deep)
            moved.append(((first, first + 1), _shift(found, draws)))
        missing = (0, 0)
        if gone := _chosen(settings.missing, draws):
            first = z + draws.whole(0, deep)
            missing = (first, first + draws.whole(1, gone.sections + 1))
        dark = None
        if low := _chosen(settings.dark, draws):
            dark = z + draws.whole(0, deep), draws.between(low.factor), draws.between(low.shift)
        boxes: list[Region] = []
        if drop := _chosen(settings.dropout, draws):
            for _ in range(draws.whole(1, drop.boxes + 1)):
                size = _triple(draws.whole(1, n + 1) for n in drop.size)
                corner = [a + draws.whole(0, n) for a, n in zip(lower, extent, strict=True)]
                begin = _triple(a - n // 2 for a, n in zip(corner, size, strict=True))
                boxes.append((begin, plus(begin, size)))
        warp = draw_warp(settings, draws, lower, extent, resolution)
        return cls(settings, draws, tuple(moved), missing, dark, tuple(boxes), warp)

    def places(self, lower: Triple, upper: Triple) -> Placed | None:
        """Return where the voxels of a region of the scene are read; None without a warp.

        Places of a region a little larger that were asked for before are returned again.
        """
        if self.warp is None:
            return None
        for (first, last), found in self.made.items():
            inside = all(a <= b for a, b in zip((*first, *upper), (*lower, *last), strict=True))
            if inside and prod(found.extent) <= MORE * prod(minus(upper, lower)):
                return replace(found, cut=(minus(lower, first), minus(upper, first)))
        found = Placed.of(self.warp, lower, upper, list(self.runs(lower[0], upper[0])))
        self.made[lower, upper] = found
        return found

    def runs(self, lower: int, upper: int) -> Iterator[tuple[Span, Shift]]:
        """Yield sections of the scene, as runs that read alike, and how far along y and x beside their place."""
        ends = {lower, upper, *(end for span, _ in self.moved for end in span)}
        inside = sorted(end for end in ends if lower <= end <= upper)
        for first, last in pairwise(inside):
            here = [by for (a, b), by in self.moved if a <= first and last <= b]
            yield (first, last), (sum(by[0] for by in here), sum(by[1] for by in here))

    def changed(self, image: Float32, lower: Triple, resolution: Triple64) -> Float32:
        """Return a normalised image (channel, z, y, x) that begins at `lower`, distorted; it may be changed."""
        image = np.require(image, requirements=["C", "W"])
        smallest = min(resolution)
        sides = [smallest / size for size in resolution]
        for whole, numbers, change in self._changes():
            # Sections with numbers of their own are changed along y and x alone.
            apart = whole.by == "section" or (whole.by == "mixed" and self.draws.share() < 0.5)
            number: Number = (
                self.draws.each(numbers, image.shape[1]) if apart else self.draws.between(numbers)
            )
            image = change(image, number, (0.0 if apart else sides[0], sides[1], sides[2]))
        if noise := _chosen(self.settings.noise, self.draws):
            image = noisy(image, self.draws.between(noise.deviation), self.draws.seeds(3))
        return self._without(image, lower)

    def _changes(self) -> Iterator[tuple[Whole, Sequence[float], Change]]:
        """Yield what is done to values, in the order in which a microscope does: sharpness first."""
        it = self.settings
        entries: list[tuple[Any, str, Change]] = [
            (it.blur, "sigma", lambda a, n, s: blurred(a, (n * s[0], n * s[1], n * s[2]))),
            (it.low_resolution, "factor", lambda a, n, s: coarser(a, _factors(n, s))),
            (it.contrast, "factor", lambda a, n, s: contrasted(a, n)),
            (it.brightness, "shift", lambda a, n, s: brightened(a, n)),
            (it.gamma, "power", lambda a, n, s: bent(a, n)),
        ]
        for section, key, change in entries:
            if found := _chosen(section, self.draws):
                yield found, getattr(found, key), change

    def _without(self, image: Float32, lower: Triple) -> Float32:
        """Darken and leave out what is to be."""
        if self.dark:
            place, factor, shift = self.dark
            here = slice(max(0, place - lower[0]), max(0, place - lower[0] + 1))
            for section in (channel[None, here] for channel in image):
                if section.size:
                    brightened(contrasted(section, factor), shift)
        gone = [max(0, end - lower[0]) for end in self.missing]
        image[:, slice(*gone)] = 0
        for first, last in self.boxes:
            z, y, x = (
                slice(max(0, a - at), max(0, b - at))
                for a, b, at in zip(first, last, lower, strict=True)
            )
            image[:, z, y, x] = 0
        return image


def _chosen(section: Any, draws: Draws) -> Any:
    """Return a distortion if it is drawn for this patch."""
    assert section is None or isinstance(section, Distortion)
    return section if section is not None and draws.share() < section.probability else None


def _shift(section: ShiftSection, draws: Draws) -> Shift:
    y, x = (draws.whole(-section.shift, section.shift + 1) for _ in range(2))
    return y, x


def _factors(factor: Number, sides: Triple64) -> tuple[Number, Number, Number]:
    z, y, x = (np.maximum(1.0, np.multiply(factor, side)) for side in sides)
    return (z, y, x)


def _triple(values: Iterable[int]) -> Triple:
    z, y, x = values
    return (z, y, x)
