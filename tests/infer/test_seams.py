"""Seams are looked for where patches and blocks meet, and found where there are any."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import pytest
from jobs import small

from znnpy.data.writing.destination import Destination
from znnpy.infer import seams
from znnpy.infer.blocks import Region
from znnpy.infer.seams import _borders, _places, verify_seams


@pytest.mark.parametrize(
    ("low", "high", "step", "blocks", "wanted"),
    [
        (0, 12, 5, [0], [5, 10]),
        (0, 12, 5, [0, 6], [5, 6, 10]),
        (7, 22, 5, [0, 8], [10, 15, 20]),
        (10, 16, 5, [0], [15]),
        (3, 6, 9, [0], [4]),
        (0, 32, 32, [0], [8, 24]),
        (10, 27, 99, [0], [14, 22]),
    ],
)
def test_where_borders_are(
    low: int, high: int, step: int, blocks: list[int], wanted: list[int]
) -> None:
    """Patches lie on a grid that begins at voxel 0 of the volume, blocks count from the region."""
    job: Any = SimpleNamespace(
        region=Region((low,) * 3, (high,) * 3),
        grid=SimpleNamespace(unit=(step,) * 3),
        spec=SimpleNamespace(blocks=lambda: [((b,) * 3, ()) for b in blocks]),
    )
    assert _borders(job, 1) == wanted


@pytest.mark.parametrize("starting", [-1e9, 1e9], ids=["small patches", "shifted ones"])
def test_a_seam_is_found_where_it_is(
    tmp_path: Path, starting: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seams, "STARTING", starting)
    tiny = small(tmp_path, threads=1)
    there = Destination(tmp_path / "out:1.h5", "p")
    tiny.run(there.path.name, block=(3, 5, 6))
    scene = tiny.scene()
    with scene.reference:
        job = tiny.job(scene, "other.h5", block=(3, 5, 6))
        assert (seams._small(job, 4) is not None) == (starting < 0)
        assert not verify_seams(job, there, 4).found
        with h5py.File(there.path, "r+") as file:
            file["p"][:, :, :, 6:] += 0.01
        shown = list[tuple[int, int]]()
        found = verify_seams(job, there, 4, lambda _, done, total: shown.append((done, total)))
    assert (found.found, found.places) == (True, 4)
    assert shown == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found.largest == pytest.approx(0.01, rel=0.01)


def test_patches_around_places_lie_on_the_lattice_and_hold_them() -> None:
    for lower in ((5, 7, 3), (8, 4, 0), (-3, 6, 2)):
        box = Region(lower, (lower[0] + 16, lower[1] + 16, lower[2] + 16))
        grid = seams._around(box, (18, 20, 16), (2, 4, 1))
        assert [place % step for place, step in zip(grid.origin, (2, 4, 1), strict=True)] == [0] * 3
        assert grid.count(box) == 1


def test_no_place_is_looked_at_twice() -> None:
    """Of more than there are all that were drawn."""
    job: Any = SimpleNamespace(
        region=Region((0,) * 3, (12, 12, 30)),
        grid=SimpleNamespace(unit=(6, 6, 10)),
        spec=SimpleNamespace(blocks=lambda: [((0,) * 3, ())]),
    )
    found = list(_places(job, 10**20))
    assert {(box.lower, box.upper) for box in found} <= {
        ((0, 0, low), (12, 12, low + 16)) for low in (2, 12)
    }
    assert len(found) == len(set(found)) == 2
    assert len(list(_places(job, 1))) == 1


def test_places_of_a_volume_without_borders_are_drawn_as_they_are_looked_at() -> None:
    """All at once would not fit into memory."""
    job: Any = SimpleNamespace(
        region=Region((0,) * 3, (2**20,) * 3),
        grid=SimpleNamespace(unit=(2**20,) * 3),
        spec=SimpleNamespace(blocks=lambda: [((0,) * 3, ())]),
    )
    for count in (10**20, 2**47):
        found = list(islice(_places(job, count), 5))
        assert len({(box.lower, box.upper) for box in found}) == 5
    seldom = [box.upper[0] for box in _places(job, 4)]
    assert seldom == sorted(seldom)
    assert seldom[-1] > 2**19
