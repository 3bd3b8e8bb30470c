"""Objects written block by block beside those of one piece: blocks, processes and refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import zarr
from called import status_of
from cells import cells, stored
from objects_written import HALO, REQUEST, TILE, written
from optional import needs_bioimage_cpp

from znnpy.data.opening import open_volume
from znnpy.data.volume import Triple
from znnpy.data.writing.destination import Destination
from znnpy.errors import VolumeError
from znnpy.segment import in_memory, methods
from znnpy.segment.job import Request, segment, settled
from znnpy.segment.objects_by_blocks import write_objects
from znnpy.segment.tile_work import Settings, settled_threads, work_of
from znnpy.segment.tiles import tiling_of

BLOCKS: list[Triple | None] = [None, (7, 44, 52), (30, 11, 13), (64, 64, 64)]


@pytest.fixture(scope="module")
def prediction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("cells") / "p.h5", cells(), resolution=[8, 8, 8])


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "tiling_of", partial(tiling_of, tile=TILE, halo=HALO))
    monkeypatch.setattr(methods, "_is_larger", lambda *_: True)


def far_and_near(path: Path, **attributes: Any) -> Path:
    """Affinities to next neighbours, which attract, and to farther ones, which repel."""
    near = [np.maximum(cells(), np.roll(cells(), 1, axis)) for axis in range(3)]
    values = 1 - np.stack([*near, cells(seed=1)])
    offsets = [[-1, 0, 0], [0, -1, 0], [0, 0, -1], [0, 0, -5]]
    return stored(path, (255 * values).astype(np.uint8), offsets=offsets, **attributes)


@cache  # for all blocks, threads and processes; in the small tiles of all tests that ask
def one_piece(prediction: Path, request: Request = REQUEST) -> np.ndarray:
    with open_volume(prediction, "p") as volume:
        return segment(volume, request).labels


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(
    "method",
    [
        "agglomerate",
        "median",
        pytest.param("multicut", marks=needs_bioimage_cpp),
        "components",
        "watershed",
    ],
)
def test_blocks_give_the_objects_of_one_piece(
    tmp_path: Path, prediction: Path, method: str, block: Triple | None
) -> None:
    request = Request(method, threshold=0.5, min_size=30)
    wanted = one_piece(prediction, request)
    settings = Settings(block=block, tile=TILE, halo=HALO)
    found = written(prediction, tmp_path / "o.h5", request, settings)
    assert found.dtype == np.uint64
    assert np.array_equal(found, wanted)
    assert len(np.unique(wanted)) > 10
    assert [path.name for path in tmp_path.iterdir()] == ["o.h5"]


@pytest.mark.share(5)
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("resolution", [[8, 8, 8], [32, 8, 8]])
@pytest.mark.parametrize(
    "method",
    ["agglomerate", "components", "watershed", pytest.param("mutex", marks=needs_bioimage_cpp)],
)
def test_affinities_by_blocks(tmp_path: Path, method: str, resolution: list[int]) -> None:
    path = far_and_near(tmp_path / "a.h5", resolution=resolution)
    request = Request(method, threshold=0.5, min_size=8)
    wanted = one_piece(path, request)
    assert len(np.unique(wanted)) > 10
    for number, block in enumerate(BLOCKS):
        settings = Settings(block=block, tile=TILE, halo=HALO)
        found = written(path, tmp_path / f"{number}.h5", request, settings)
        assert np.array_equal(found, wanted)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("method", ["agglomerate", "components", "watershed"])
def test_any_number_of_threads(tmp_path: Path, prediction: Path, method: str, threads: int) -> None:
    request = Request(method, threshold=0.5, min_size=30)
    settings = Settings(block=(16, 16, 16), tile=TILE, halo=HALO, threads=threads)
    found = written(prediction, tmp_path / "o.h5", request, settings)
    assert np.array_equal(found, one_piece(prediction, request))


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    ("method", "suffix"),
    [
        ("agglomerate", "h5"),
        ("agglomerate", "zarr"),
        ("components", "zarr"),
        ("watershed", "h5"),
        ("median", "h5"),
        pytest.param("multicut", "h5", marks=needs_bioimage_cpp),
        pytest.param("mutex", "zarr", marks=needs_bioimage_cpp),
    ],
)
def test_two_processes(
    tmp_path: Path, prediction: Path, two_processes: Any, method: str, suffix: str
) -> None:
    source, out = prediction, tmp_path / f"o.{suffix}"
    request = Request(method, threshold=0.5, min_size=30)
    if method == "mutex":
        (tmp_path / "given").mkdir()
        source = far_and_near(tmp_path / "given" / "a.h5")
    settings = Settings(block=(16, 16, 16), tile=TILE, halo=HALO, client=two_processes)
    with open_volume(source, "p") as volume:
        found = write_objects(Destination(out, "l"), volume, request, settings)
    wanted = one_piece(source, request)
    with open_volume(out, "l" if suffix == "h5" else "l/0") as volume:
        assert np.array_equal(volume.read_all()[0], wanted)
    assert found is not None
    assert found.objects == wanted.max()
    assert [path.name for path in tmp_path.iterdir() if path.name != "given"] == [out.name]


def test_nothing_inside(tmp_path: Path) -> None:
    path = stored(tmp_path / "p.h5", np.ones((20, 30, 40), np.float32))
    assert not written(path, tmp_path / "o.h5").any()


def test_memory_is_refused_before_anything_is_made(tmp_path: Path, prediction: Path) -> None:
    small = Settings(memory=1 << 20, tile=TILE, halo=HALO)
    said = r"a tile of \(16, 24, 32\) voxels .* are allowed; objects depend on"
    with pytest.raises(VolumeError, match=said):
        written(prediction, tmp_path / "o.h5", settings=small)
    many = replace(small, memory=1 << 40, threads=10**9)
    whole = Settings(memory=1 << 40, tile=(64, 64, 64), threads=10**9)
    with open_volume(prediction, "p") as volume:
        found, method, threshold = settled(volume, REQUEST)
        output = Destination.named(str(tmp_path / "o.h5"), "labels")
        for settings, count in ((many, 8), (whole, 1)):
            work = work_of(output, volume, REQUEST, (found, method, threshold), settings)
            assert len(work.tiling.places) == count
            assert settled_threads(volume, method, work, settings) == count
    short = replace(many, memory=psutil.Process().memory_info().rss + (1 << 20))
    with pytest.raises(VolumeError, match=r"work on 8 tiles of \(16, 24, 32\) voxels .* at once"):
        written(prediction, tmp_path / "o.h5", settings=short)
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path: Path, prediction: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["segment", f"{prediction}:p", "--threshold", "0.5"]
    out = tmp_path / "o.zarr"
    assert status_of(*words, "--output", str(out), "--block", "16") == 0
    said = capsys.readouterr()
    found = zarr.open_array(out / "0", mode="r")
    assert f"{int(found[...].max())} objects, 100.0% of the voxels" in said.out
    assert found.shards == (16, 16, 16)
    assert status_of(*words, "--output", str(out)) == 1
    assert "exists already" in capsys.readouterr().err
    assert status_of(*words, "--output", str(tmp_path / "o.tif")) == 0
    with open_volume(tmp_path / "o.tif") as volume:
        assert np.array_equal(volume.read_all()[0], found[...])
    for more in (
        ["o.tif", "--block", "8"],
        ["x.tif", "--method", "watershed", "--dask", "local:2"],
    ):
        capsys.readouterr()
        assert status_of(*words, "--output", str(tmp_path / more[0]), *more[1:]) == 2
        assert more[-2] in capsys.readouterr().err


def test_the_command_over_processes(
    tmp_path: Path, prediction: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["segment", f"{prediction}:p", "--output", str(tmp_path / "o.h5")]
    assert status_of(*words, "--dask", "local:1") == 0
    assert "objects, 100.0% of the voxels" in capsys.readouterr().out
    assert written(prediction, tmp_path / "p.h5", Request(), Settings()).max() > 10


def test_what_looks_wrong_is_remarked_on(tmp_path: Path) -> None:
    """An object of more than half the volume, and integers far below their largest, as in memory."""
    height = np.zeros((20, 30, 64), np.float32)
    height[:, :, 12:14] = 1
    path = stored(tmp_path / "p.h5", height)
    with pytest.warns(UserWarning, match=r"object 2 has [78][0-9]% of the voxels"):
        found = written(path, tmp_path / "o.h5", Request())
    assert found.max() == 2
    path = stored(tmp_path / "one.h5", np.zeros_like(height))
    with pytest.warns(UserWarning, match="object 1 has 100% of the voxels"):
        assert written(path, tmp_path / "all.h5", Request()).max() == 1
    path = stored(tmp_path / "m.h5", height.astype(np.uint8))
    with pytest.warns(UserWarning, match=r"holds uint8 up to 1, and 255 is the probability 1"):
        written(path, tmp_path / "x.h5", Request())


def test_of_a_prediction_that_is_refused_nothing_stays(tmp_path: Path) -> None:
    """Else what is written of another one to that place is refused as another job's."""
    logits = stored(tmp_path / "p.h5", 9 * cells() - 4)
    with (
        open_volume(logits, "p") as volume,
        pytest.raises(VolumeError, match="without --logits"),
    ):
        write_objects(Destination(tmp_path / "o.h5", "l"), volume, REQUEST)
    assert list(tmp_path.iterdir()) == [logits]
