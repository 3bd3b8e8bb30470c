"""Objects by blocks that are stopped: kills at every stage, other jobs, damage."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from cells import cells, stored
from children import KILLED, counted, forked
from objects_written import SETTINGS, written
from optional import needs_bioimage_cpp

from znnpy.data.opening import open_volume
from znnpy.data.volume import Triple
from znnpy.data.writing.destination import Destination, journal_of
from znnpy.errors import VolumeError
from znnpy.segment import objects_by_blocks
from znnpy.segment.job import Request
from znnpy.segment.objects_by_blocks import write_objects
from znnpy.segment.tile_store import TileStore


@pytest.fixture(scope="module")
def prediction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("cells") / "p.h5", cells(), resolution=[8, 8, 8])


@pytest.fixture(scope="module")
def affinities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    near = [np.maximum(cells(), np.roll(cells(), 1, axis)) for axis in range(3)]
    values = 1 - np.stack([*near, cells(seed=1)])
    offsets = [[-1, 0, 0], [0, -1, 0], [0, 0, -1], [0, 0, -5]]
    path = tmp_path_factory.mktemp("affinities") / "a.h5"
    return stored(path, values.astype(np.float32), offsets=offsets, resolution=[8, 8, 8])


def done_of(store: TileStore) -> dict[str, set[str]]:
    """The tiles to which each pass is done."""
    found: dict[str, set[str]] = {name: set() for name in ("part", "bonds", "grown")}
    for path in store.folder.glob("*.npz"):
        place, what, _ = path.name.split(".")
        if what in found:
            found[what].add(place)
    return found


PASSES = {"cut_tile": "part", "meet_tile": "bonds", "grow_tile": "grown"}


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "method",
    ["agglomerate", "components", "watershed", pytest.param("mutex", marks=needs_bioimage_cpp)],
)
def test_killed_at_every_call_to_the_disk(
    tmp_path: Path,
    prediction: Path,
    affinities: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    source = affinities if method == "mutex" else prediction
    request = Request(method, threshold=0.5, min_size=30)
    wanted = written(source, tmp_path / "whole.h5", request)
    out = tmp_path / "o.h5"
    made: dict[str, set[str]] = {what: set() for what in PASSES.values()}

    def counting(make: Any, what: str) -> Any:
        def counted_too(work: Any, place: Triple) -> Any:
            made[what].add("-".join(map(str, place)))
            return make(work, place)

        return counted_too

    for name, what in PASSES.items():
        monkeypatch.setattr(
            objects_by_blocks, name, counting(getattr(objects_by_blocks, name), what)
        )

    def dying(limit: int, into: int) -> None:
        calls = counted(limit)
        written(source, out, request)
        os.write(into, str(calls[0]).encode())

    status, said = forked(partial(dying, 1 << 40))
    assert status == 0
    out.unlink()
    stages = set()
    step = 1 if os.environ.get("ZNNPY_EVERY_CALL") else 41
    for limit in range(0, int(said), step):
        status, _ = forked(partial(dying, limit))
        assert status == KILLED
        store = TileStore.beside(out)
        done = done_of(store)
        begun = frozenset(what for what, places in done.items() if places)
        stages.add((begun, store.folder.is_dir() and store.settled))
        for places in made.values():
            places.clear()
        if out.exists() and not journal_of(out).exists():
            with h5py.File(out) as file:
                assert np.array_equal(file["l"][()], wanted)
        else:
            assert np.array_equal(written(source, out, request), wanted)
            for what, places in made.items():
                assert not places & done[what], "a tile that was done is done again"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["o.h5", "whole.h5"]
        out.unlink()
    cut = frozenset({"part"})
    more = {"watershed": {"grown"}, "mutex": {"bonds"}}.get(method, set())
    assert {(frozenset(), False), (cut, False), (cut | more, True)} <= stages
    assert method != "mutex" or (cut | more, False) in stages


@pytest.mark.parametrize("method", ["agglomerate", "watershed"])
def test_killed_and_finished_by_two_processes(
    tmp_path: Path, prediction: Path, two_processes: Any, method: str
) -> None:
    """From each stage, with the same objects."""
    request = Request(method, threshold=0.5, min_size=30)
    wanted = written(prediction, tmp_path / "whole.h5", request)
    out, stages = tmp_path / "o.h5", set()

    def dying(limit: int, into: int) -> None:
        calls = counted(limit)
        written(prediction, out, request)
        os.write(into, str(calls[0]).encode())

    _, said = forked(partial(dying, 1 << 40))
    out.unlink()
    for part in (0.1, 0.3, 0.5, 0.7, 0.85, 0.95):
        status, _ = forked(partial(dying, int(part * int(said))))
        assert status == KILLED
        store = TileStore.beside(out)
        stages.add((bool(done_of(store)["part"]), store.folder.is_dir() and store.settled))
        settings = replace(SETTINGS, client=two_processes)
        assert np.array_equal(written(prediction, out, request, settings), wanted)
        out.unlink()
    assert {(True, False), (True, True)} <= stages


def test_what_was_begun_by_another_job(tmp_path: Path, prediction: Path) -> None:
    out = tmp_path / "o.h5"

    def dying(into: int) -> None:
        counted(90)
        written(prediction, out)

    assert forked(dying)[0] == KILLED
    assert TileStore.beside(out).has((0, 0, 0))
    with pytest.raises(VolumeError, match=r"begun by another job.*threshold was 0.5, now 0.3"):
        written(prediction, out, Request(threshold=0.3))
    with open_volume(prediction, "p") as volume:
        write_objects(Destination(out, "l", True), volume, Request(threshold=0.3), SETTINGS)
    wanted = written(prediction, tmp_path / "whole.h5", Request(threshold=0.3))
    with h5py.File(out) as file:
        assert np.array_equal(file["l"][()], wanted)


def test_damaged_tiles(tmp_path: Path, prediction: Path) -> None:
    out = tmp_path / "o.h5"

    def dying(into: int) -> None:
        counted(90)
        written(prediction, out)

    assert forked(dying)[0] == KILLED
    folder = TileStore.beside(out).folder
    (folder / "0-0-0.part.npz").write_bytes(b"PK")
    with pytest.raises(VolumeError, match=r"0-0-0.part.npz is damaged or gone; remove the folder"):
        written(prediction, out)
