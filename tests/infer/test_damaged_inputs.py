"""Predictions of damaged files end with one error or with exact data; none crashes, hangs or grows.

Exact: what another reader finds in the damaged file gives the same prediction; a file that was only
cut short, or that the other cannot read, gives the prediction of the whole one.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest
import tifffile
import zarr
from children import forked
from damage import CUBE, damaged, mutate, write_image
from jobs import Small, small
from shares import examples

from znnpy.data.opening import open_volume
from znnpy.data.scene import Scene
from znnpy.data.volume import Array, ArrayVolume, Volume
from znnpy.data.writing.destination import Destination
from znnpy.errors import ZnnpyError
from znnpy.infer.block_writer import run_job

ROOM = 1 << 30  # bytes of address space beyond what the process has
SECONDS = 300


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Small:
    found = small(tmp_path_factory.mktemp("damaged"), threads=1)
    found.run("warm.h5")
    return found


def outcome(tiny: Small, path: Path, plain: Callable[[Path], Array], cut: bool) -> bytes:
    """In a child with little room and time: b"done" or b"refused"; anything else is a failure."""

    def work(pipe: int) -> None:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
        try:
            with open_volume(path) as volume:
                found = predicted(tiny, volume, {"input": path})
        except ZnnpyError:
            os.write(pipe, b"refused")
            return
        there = CUBE if cut else plainly(path, plain)
        assert np.array_equal(found, predicted(tiny, ArrayVolume(there, "plain"), {}))
        os.write(pipe, b"done")

    code, said = forked(work, SECONDS)
    for left in tiny.folder.glob("*out.h5*"):
        left.unlink()
    assert code == 0, f"{path}: ended with {code}"
    return said


def plainly(path: Path, plain: Callable[[Path], Array]) -> Array:
    """What another reader finds; the undamaged image when it finds nothing."""
    try:
        return plain(path)
    except Exception:
        return CUBE


def predicted(tiny: Small, volume: Volume, sources: dict[str, Path]) -> Array:
    """By way of a file."""
    job = tiny.job(Scene({"input": volume}, {}), sources=sources)
    run_job(job, Destination(tiny.folder / "out.h5", "p", overwrite=True))
    with h5py.File(tiny.folder / "out.h5") as file:
        return np.asarray(file["p"])


def hdf5(path: Path, **options: object) -> None:
    with h5py.File(path, "w") as file:
        made = file.create_dataset("volumes/raw", data=CUBE, **options)
        made.attrs.update({"resolution": [4.0, 4.0, 4.0], "offset": [0, 0, 0]})


def tiff(path: Path, **options: object) -> None:
    tifffile.imwrite(path, CUBE, photometric="minisblack", metadata={"axes": "ZYX"}, **options)


def hdf5_plain(path: Path) -> Array:
    with h5py.File(path) as file:
        if "volumes/raw" in file:
            return np.asarray(file["volumes/raw"])
        found: list[Array] = []
        file.visititems(lambda _, o: found.append(o[...]) if hasattr(o, "shape") else None)
        return found[0]


def zarr_plain(path: Path) -> Array:
    return np.asarray(zarr.open_array(path / "0", mode="r"))


class Kind(NamedTuple):
    name: str
    write: Callable[[Path], None]
    plain: Callable[[Path], Array]


KINDS = {
    "hdf5": Kind("a.h5", hdf5, hdf5_plain),
    "hdf5 chunks": Kind("a.h5", partial(hdf5, chunks=(2, 3, 4), compression="gzip"), hdf5_plain),
    "tiff": Kind("a.tif", tiff, tifffile.imread),
    "tiff zlib": Kind("a.tif", partial(tiff, compression="zlib"), tifffile.imread),
    "zarr 2": Kind("a.zarr", partial(write_image, form=2), zarr_plain),
    "zarr 3": Kind("a.zarr", partial(write_image, form=3), zarr_plain),
}


def damages(path: Path, choose: random.Random) -> Iterator[bool]:
    """Change the bytes of a file, or values of its metadata; whole again afterwards. Whether only cut."""
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
    while True:
        file = choose.choice(files)
        whole = file.read_bytes()
        if file.name in ("zarr.json", ".zarray", ".zattrs") and choose.random() < 0.7:
            metadata = json.loads(whole)
            mutate(metadata, choose)
            data = json.dumps(metadata).encode()
        else:
            data = damaged(whole, choose)
        file.write_bytes(data)
        yield whole.startswith(data)
        file.write_bytes(whole)


@pytest.mark.quick(3)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_input(tiny: Small, tmp_path: Path, kind: str) -> None:
    name, write, plain = KINDS[kind]
    # As properties, it is tried on few where slow tests are left out.
    count = 24 if examples(24).max_examples == 24 else 4
    path, choose = tmp_path / name, random.Random(count)
    write(path)
    assert outcome(tiny, path, plain, True) == b"done"
    assert outcome(tiny, path, plain, False) == b"done"
    changes = itertools.islice(damages(path, choose), count)
    outcomes = {outcome(tiny, path, plain, cut) for cut in changes}
    assert outcomes <= {b"done", b"refused"}
    assert count < 20 or len(outcomes) == 2
