"""`znnpy view` as its users call it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from called import status_of

from znnpy.data.hdf5 import safety
from znnpy.data.hdf5.safety import MORE_FILTERS


def run(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    status = status_of(*words)
    out, errors = capsys.readouterr()
    assert status == code, errors
    return out, errors


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["raw"] = rng.integers(0, 255, (6, 20, 20)).astype(np.uint8)
        file["labels"] = rng.integers(0, 9, (6, 20, 20)).astype(np.uint32)
        file["odd"] = np.zeros((6, 20, 21), np.uint8)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "a.h5"


@pytest.mark.slow
def test_files(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    out, _ = run(capsys, "view", "a.h5:raw", "a.h5:labels", "prediction=a.h5:raw", "--slices", 2)
    assert out.split() == ["view/z00001.png", "view/z00004.png"]
    assert sorted(p.name for p in (data.parent / "view").iterdir()) == ["z00001.png", "z00004.png"]
    out, _ = run(capsys, "view", "a.h5:raw", "--output", "deep/er", "--axis", "x", "--slices", "1")
    assert out.split() == ["deep/er/x00010.png"]


def test_refusals(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    assert "a.h5:odd" in run(capsys, "view", "a.h5:raw", "a.h5:odd", code=1)[1]
    assert "does not exist" in run(capsys, "view", "b.h5", code=1)[1]
    assert "before = stands one of" in run(capsys, "view", "mask=a.h5:raw", code=2)[1]
    assert "Usage" in run(capsys, "view", code=2)[1]
    assert "--slices" in run(capsys, "view", "a.h5:raw", "--slices", "0", code=2)[1]
    assert "a.h5 is a file" in run(capsys, "view", "a.h5:raw", "--output", "a.h5", code=1)[1]
    assert not (data.parent / "view").exists()


def test_compressions_are_allowed_by_name(
    capsys: pytest.CaptureFixture[str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunk is stored as it is; so no plug-in is needed."""
    values = np.linspace(0, 1, 6 * 20 * 20, dtype=np.float32).reshape(6, 20, 20)
    with h5py.File("other.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(values.shape)
        properties.set_filter(MORE_FILTERS["zstd"], h5py.h5z.FLAG_OPTIONAL, (1,))
        space = h5py.h5s.create_simple(values.shape)
        made = h5py.h5d.create(file.id, b"p", h5py.h5t.NATIVE_FLOAT, space, properties)
        made.write_direct_chunk((0, 0, 0), values.tobytes(), 1)
    monkeypatch.setattr(safety, "_available", lambda code: True)
    for words in (("view", "other.h5:p"), ("segment", "other.h5:p", "--output", "objects.h5")):
        _, errors = run(capsys, *words, code=1)
        assert "of view and segment --allow-filter zstd" in errors
        _, errors = run(capsys, *words, "--allow-filter", "zst", code=2)
        assert "'zst' is none of szip, " in errors
        run(capsys, *words, "--allow-filter", "zstd")
