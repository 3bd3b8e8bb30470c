"""Slices over time: evenly spread, within a bounded file, and read without trusting it."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from znnpy.train.display.slices import GAP, LARGEST, MOST, Slices, drawn


def picture(text: str) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(base64.b64decode(text))))


def test_raw_target_and_prediction_lie_side_by_side() -> None:
    raw = np.random.default_rng(0).normal(size=(1, 7, 12, 14)).astype(np.float32)
    target = np.zeros((1, 3, 6, 8), np.float32)
    target[:, :, :, 4:] = 1
    found = picture(drawn(raw, target, np.full_like(target, 0.5)))
    assert found.shape == (6, 3 * 8 + 2 * GAP, 3)
    assert (found[:, 8 + GAP : 16 + GAP, 0] == 255 * target[0, 1]).all()
    assert (found[:, 16 + 2 * GAP :, 0] == 127).all()
    seen = raw[0, 3, 3:9, 3:11]
    order = np.argsort(seen, axis=None)
    assert (np.diff(found[:, :8, 0].ravel()[order].astype(int)) >= 0).all()


def test_large_and_odd_patches_are_drawn() -> None:
    large = np.zeros((3, 1, 2 * LARGEST + 1, 5), np.float32)
    assert picture(drawn(large, large, large)).shape[0] <= LARGEST
    single = np.zeros((10, 1, 1, 1), np.float32)  # classes of whole images
    assert picture(drawn(np.zeros((1, 1, 28, 28)), single, single)).ndim == 3
    odd = np.full((1, 1, 4, 4), np.nan, np.float32)
    assert picture(drawn(odd, odd * 0 + 1, odd)).shape[0] == 4


def test_of_many_some_are_kept_evenly_spread() -> None:
    slices, blank = Slices(), np.zeros((1, 1, 2, 2), np.float32)
    for iteration in range(100, 10_100, 100):
        slices.add(iteration, blank, blank, blank)
    kept = sorted(slices.pictures)
    assert len(kept) <= MOST
    assert (kept[0], kept[-1]) == (100, 10_000)
    assert max(np.diff(kept)) <= 10_000 / 4


def test_a_file_is_read_as_far_as_it_is_sound(tmp_path: Path) -> None:
    slices, blank = Slices(), np.zeros((1, 1, 2, 2), np.float32)
    for iteration in (5, 10):
        slices.add(iteration, blank, blank, blank)
    path = tmp_path / "slices.json"
    slices.write(path)
    assert Slices.read(path, 10).pictures == slices.pictures
    assert set(Slices.read(path, 9).pictures) == {5}
    odd = {"1": '"><script>', "x": "AAAA", "9" * 5000: "AAAA", "٣": "AAAA", "2": 3, "4": "AAAA"}
    path.write_text(json.dumps(odd))
    assert Slices.read(path, 10).pictures == {4: "AAAA"}
    path.write_text("[")
    assert Slices.read(path, 10).pictures == {}


@pytest.mark.parametrize("missing", ["none.json"])
def test_no_file_is_no_slice(tmp_path: Path, missing: str) -> None:
    assert Slices.read(tmp_path / missing, 10).pictures == {}
