"""The model file for chunkflow: by the contract of its documents, and by chunkflow itself where it is installed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nets_of_backends import SIGMOID, VALID, by_scipy, probabilities, run_folder

import znnpy
from znnpy.backends import chunkflow
from znnpy.errors import ConfigError, ShapeError

SIZE = (4, 8, 8)
UNIT = {"data": {"normalize": "unit"}, "training": {"output_shape": [4, 6, 6], **SIGMOID}}


def test_probabilities_times_the_mask(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", **UNIT)
    rng = np.random.default_rng(0)
    mask, given = rng.random(SIZE), rng.random((1, 1, *SIZE)).astype(np.float32)
    inferencer = chunkflow.PatchInferencer(str(run), mask)
    wanted = probabilities(by_scipy(znnpy.open_run(run).parameters, given[0], True)) * mask
    found = inferencer(given)
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found[0], wanted, atol=1e-5)
    assert inferencer.compute_device == "znnpy"


def test_values_are_cut_to_the_mask_in_the_middle(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", **UNIT)
    given = np.random.default_rng(0).random((1, 1, *SIZE)).astype(np.float32)
    whole = chunkflow.PatchInferencer(str(run), np.ones(SIZE))(given)
    middle = chunkflow.PatchInferencer(str(run), np.ones((2, 4, 8)))(given)
    np.testing.assert_array_equal(middle, whole[:, :, 1:3, 2:6])


@pytest.mark.parametrize("size", [(4, 4, 6), (4, 8, 8)])
def test_masks_that_the_output_cannot_cover_are_refused(size: Any, tmp_path: Path) -> None:
    inferencer = chunkflow.PatchInferencer(
        str(run_folder(tmp_path / "run", VALID, **UNIT)), np.ones(size)
    )
    with pytest.raises(ShapeError, match=r"\(3, 4, 6\) voxels.*--output-patch-size"):
        inferencer(np.zeros((1, 1, *SIZE), np.float32))


def test_runs_that_normalise_are_refused_unless_chunks_are_prepared(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", data={"normalize": "mean_std"})
    with pytest.raises(ConfigError, match=r"data.normalize: mean_std.*prepared = True"):
        chunkflow.PatchInferencer(str(run), np.ones(SIZE))

    class Own(chunkflow.PatchInferencer):
        prepared = True

    assert Own(str(run), np.ones(SIZE))(np.zeros((1, 1, *SIZE), np.float32)).shape == (1, 2, *SIZE)


@pytest.mark.parametrize("overlap", [(0, 0, 0), (2, 4, 4)])
def test_a_chunk_by_chunkflow(overlap: Any, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inferencers = pytest.importorskip(
            "chunkflow.flow.divid_conquer.inferencer", exc_type=ImportError
        )
        chunks = pytest.importorskip("chunkflow.chunk")
    # Of nets without neighbours patches make no difference, so that any blending has the net's own values.
    one = {"conv": {"channels": 3, "size": 1, "function": "relu"}}
    network = {"layers": [one, {"conv": {"channels": 2, "size": 1}}]}
    run = run_folder(tmp_path / "run", network, **UNIT)
    raw = np.random.default_rng(0).integers(1, 255, (8, 20, 16)).astype(np.uint8)
    parameters = znnpy.open_run(run).parameters
    inferencer = inferencers.Inferencer(
        chunkflow.__file__,
        str(run),
        SIZE,
        num_output_channels=2,
        output_patch_overlap=overlap,
        framework="universal",
        mask_output_chunk=True,
    )
    found = inferencer(chunks.Chunk(raw, voxel_offset=(10, 20, 30)))
    wanted = probabilities(by_scipy(parameters, raw[None] / 255, True))
    np.testing.assert_allclose(found.array, wanted, atol=1e-5)
    assert tuple(found.voxel_offset) == (10, 20, 30)
    assert inferencer.compute_device == "znnpy"
