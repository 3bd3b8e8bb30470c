"""Pictures that are written are those that Pillow reads; what they cannot hold is refused, or written as HDF5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from znnpy.cli.predict_sets import cases_of
from znnpy.data.writing.block_output import OutputSpec, open_output
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.png_output import write_png
from znnpy.errors import VolumeError

RNG = np.random.default_rng(0)


def written(path: Path, array: Any, parts: int = 2) -> Path:
    """By blocks, in two goes."""
    spec = OutputSpec(array.shape, array.dtype, (1, 5, 4), {"resolution": [1, 1, 1]})
    blocks = spec.blocks()
    for some in (blocks[:parts], blocks[parts:]):
        with open_output(Destination.named(str(path), "main"), spec) as out:
            for lower, upper in some:
                at = tuple(slice(a, b) for a, b in zip(lower, upper, strict=True))
                out.write(lower, array[(slice(None), *at)])
            if len(out.done) == len(blocks):
                out.finish()
    return path


@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_pillow_reads_it(tmp_path: Path, dtype: str) -> None:
    array = RNG.integers(0, np.iinfo(dtype).max, (1, 1, 11, 9)).astype(dtype)
    with Image.open(written(tmp_path / "p.png", array)) as image:
        assert np.array_equal(np.asarray(image), array[0, 0])
    assert [it.name for it in tmp_path.iterdir()] == ["p.png"]


def test_whoever_goes_on_finishes_the_picture_that_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it wants another one, of as many bytes, which is refused then."""
    array = RNG.integers(0, 255, (1, 1, 12, 9)).astype(np.uint8)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Image.Image, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            written(tmp_path / "p.png", array)
    assert not (tmp_path / "p.png").exists()
    with pytest.raises(VolumeError, match="shape was"):
        written(tmp_path / "p.png", array.reshape(1, 1, 9, 12))
    with Image.open(tmp_path / "p.png") as image:
        assert np.array_equal(np.asarray(image), array[0, 0])


def test_where_it_lies_is_lost_which_is_told(tmp_path: Path) -> None:
    labels = np.zeros((1, 3, 4), np.uint8)
    with pytest.warns(UserWarning, match=r"cannot say where it lies, which is \(0.0, 4.0, 8.0\)"):
        write_png(Destination(tmp_path / "a.png", ""), labels, {"offset": [0.0, 4.0, 8.0]})


def test_labels_in_memory(tmp_path: Path) -> None:
    for highest, kind in ((200, np.uint8), (300, np.uint16)):
        labels = np.arange(highest + 1, dtype=np.uint64).reshape(1, 1, -1)
        write_png(Destination(tmp_path / f"{highest}.png", ""), labels)
        with Image.open(tmp_path / f"{highest}.png") as image:
            assert np.asarray(image).dtype == kind
            assert np.array_equal(np.asarray(image), labels[0])


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 1, 3, 4), "u1"), ((1, 2, 3, 4), "u1"), ((1, 1, 3, 4), "f4")]
)
def test_what_it_cannot_hold(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(VolumeError, match="one channel of one slice, of uint8 or uint16"):
        written(tmp_path / "p.png", np.zeros(shape, dtype))
    assert not (tmp_path / "p.png").exists()


@pytest.mark.parametrize(
    ("dtype", "channels", "suffixes"),
    [
        ("float32", 1, ("h5", "mrc", "tif")),
        ("uint8", 1, ("png", "h5", "tif")),
        ("uint8", 2, ("h5", "h5", "tif")),
    ],
)
def test_outputs_of_sets_are_of_formats_that_hold_them(
    tmp_path: Path, dtype: str, channels: int, suffixes: tuple[str, ...]
) -> None:
    for end, wanted in zip(("png", "mrc", "tif"), suffixes, strict=True):
        (tmp_path / f"a.{end}").touch()
        (case,) = cases_of({"": f"{tmp_path}/*.{end}"}, None, "out", dtype, channels)
        assert case.output == f"out/a.{wanted}"
        if wanted == end:
            with pytest.raises(VolumeError, match=r"is read, and .* name another folder"):
                cases_of({"": f"{tmp_path}/*.{end}"}, None, str(tmp_path), dtype, channels)
