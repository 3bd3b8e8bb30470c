"""Arrays in npy files: what NumPy writes is read by region, never through pickle."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["u1", ">i2", "<u2", "<f4", ">f8", "i8", "f2", "?"])
@pytest.mark.parametrize("shape", [(5, 6), (4, 5, 6), (3, 4, 5, 6)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_writes(tmp_path: Path, dtype: str, shape: tuple[int, ...], order: Any) -> None:
    array = np.asarray(RNG.integers(0, 2, shape).astype(dtype), order=order)
    np.save(tmp_path / "a.npy", array)
    wanted = array.reshape((1,) * (4 - len(shape)) + shape)
    with open_volume(tmp_path / "a.npy") as volume:
        assert volume.shape == wanted.shape
        assert volume.unnamed == (len(shape) == 4)
        shown = {"f2": "f4"}.get(dtype, dtype)
        assert volume.dtype == np.dtype(shown).newbyteorder("=")
        assert np.array_equal(volume.read_all(), wanted)
        assert np.array_equal(volume.read((0, 1, 2), (1, 5, 4)), wanted[:, :1, 1:5, 2:4])


def test_a_mask_is_one_whatever_its_bytes_are(tmp_path: Path) -> None:
    """Of bytes of 0 and 1, 1 would be a probability of a 255th."""
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4), np.bool_))
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data[:-3] + bytes([1, 2, 0]))
    with open_volume(tmp_path / "a.npy") as volume:
        found = volume.read_all()
    assert found.dtype == np.bool_
    assert found.reshape(-1).view(np.uint8).tolist() == [0] * 21 + [1, 1, 0]


def test_one_label_for_each_slice(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(7))
    with open_volume(tmp_path / "a.npy", role="labels") as volume:
        assert volume.shape == (1, 7, 1, 1)
    with pytest.raises(VolumeError, match="has 1 axes"):
        open_volume(tmp_path / "a.npy")


def header(text: str) -> bytes:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "|u1", "fortran_order": False, "shape": (4, 5, 6)}
    )
    return head.getvalue().replace(b"(4, 5, 6)", text.encode())


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('loaded')",))


def test_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.array([Bomb()] * 8, object).reshape(2, 2, 2), allow_pickle=True)
    assert pickle.dumps(Bomb()) is not None
    with pytest.raises(VolumeError, match="Python objects, which pickle alone reads: refused"):
        open_volume(path)
    for array, words in (
        (np.zeros((2, 2, 2), complex), "expected integers or floats"),
        (np.zeros((2, 2, 2), "U3"), "expected integers or floats"),
        (np.zeros((2, 2, 2), [("a", "u1")]), "expected integers or floats"),
        (np.zeros((1, 1, 1, 2, 2), "u1"), "has 5 axes"),
        (np.zeros((0, 2, 2), "u1"), "is empty"),
    ):
        np.save(path, array)
        with pytest.raises(VolumeError, match=words):
            open_volume(path)
    for shape, words in (
        ("(4, 5, 7)", "is truncated"),
        ("(4, 5, 1000000000000)", "is truncated: .* declares"),
        ("(4, -5, -6)", "is empty"),
        ("(4, 5, x)", "header is damaged"),
        ("(" + "1," * 20 + ")", "has 20 axes"),
    ):
        path.write_bytes(header(shape) + bytes(120))
        with pytest.raises(VolumeError, match=words):
            open_volume(path)
