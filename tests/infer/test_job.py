"""Predictions to files: planned, begun, interrupted, continued, refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from jobs import PATCH, small

from znnpy.config.models import BoundaryTarget, ImageTarget, LabelsTarget
from znnpy.data.scene import Scene
from znnpy.data.writing import hdf5_output
from znnpy.data.writing.destination import Destination
from znnpy.errors import ConfigError, PlanError, ShapeError, VolumeError
from znnpy.infer import memory, patch_search
from znnpy.infer.block_writer import run_job
from znnpy.infer.blocks import Region
from znnpy.infer.grid import Grid
from znnpy.infer.log import log_of
from znnpy.infer.seams import verify_seams
from znnpy.learning.losses import loss_keys

MIB = 1 << 20


@pytest.fixture
def tiny(tmp_path):
    return small(tmp_path)


@pytest.mark.quick(1)
@pytest.mark.parametrize("conv", ["direct", "fft", "spectral"])
def test_files_are_bytewise_the_same_for_any_threads(tmp_path, conv):
    files = []
    for threads in (1, 3, 8):
        small(tmp_path, conv, threads).run(f"{threads}.h5", block=(3, 7, 6))
        files.append((tmp_path / f"{threads}.h5").read_bytes())
    assert files[0] == files[1] == files[2]


@pytest.mark.quick(1)
@pytest.mark.parametrize("conv", ["direct", "fft"])
def test_values_are_the_same_for_any_block(tmp_path, conv):
    tiny = small(tmp_path, conv)
    one = tiny.run("one.h5")
    for number, block in enumerate([(1, 17, 19), (4, 10, 6), (3, 3, 3), (9, 4, 19), (8, 8, 7)]):
        assert np.array_equal(tiny.run(f"{number}.h5", block=block), one)


@pytest.mark.parametrize("conv", ["direct", "fft"])
def test_region_of_interest_is_cut_from_the_whole(tmp_path, conv):
    tiny = small(tmp_path, conv)
    roi = Region((2, 3, 5), (8, 15, 12))
    part = tiny.run("part.h5", roi=roi)
    assert np.array_equal(part, tiny.run("one.h5")[:, 2:8, 3:15, 5:12])
    with h5py.File(tmp_path / "part.h5") as file:
        assert file["p"].attrs["offset"].tolist() == [2, 3, 5]
        assert file["p"].attrs["patch"].tolist() == list(PATCH)


def test_blocks_of_a_region_are_whole_patches_of_the_volume(tiny):
    with tiny.scene().reference:
        job = tiny.job(tiny.scene(), roi=Region((2, 3, 5), (8, 15, 12)), block=PATCH)
    assert all(Grid(PATCH).count(block) == 1 for block in job.order)
    assert sum(block.voxels for block in job.order) == 6 * 12 * 7
    assert job.kept == 0


def interrupted(tiny, monkeypatch, after, **changes):
    """Run until so many blocks are written."""
    real, written = hdf5_output.Hdf5Output.write, []

    def write(self, lower, values):
        if len(written) == after:
            raise KeyboardInterrupt
        written.append(lower)
        real(self, lower, values)

    with monkeypatch.context() as patched:
        patched.setattr(hdf5_output.Hdf5Output, "write", write)
        with pytest.raises(KeyboardInterrupt):
            tiny.run(**changes)
    assert not (tiny.folder / "out.h5").exists()


def test_stopped_job_goes_on_with_what_is_recorded(tiny, monkeypatch):
    whole = tiny.run("whole.h5", block=PATCH)
    interrupted(tiny, monkeypatch, 5, block=PATCH)
    written = []
    monkeypatch.setattr(
        hdf5_output.Hdf5Output,
        "write",
        lambda self, lower, values, real=hdf5_output.Hdf5Output.write: (
            written.append(lower) or real(self, lower, values)
        ),
    )
    found = tiny.run(patch=None)  # patch and block come from the journal
    assert np.array_equal(found, whole)
    assert len(written) == 3 * 4 * 4 - 5
    assert (tiny.folder / "out.h5").read_bytes() == (tiny.folder / "whole.h5").read_bytes()
    events = [json.loads(line)["event"] for line in log_of(tiny.folder / "out.h5").open()]
    assert events.count("start") == 2
    assert events.count("block") >= 3 * 4 * 4 - 1
    assert events[-1] == "finish"


def test_damaged_block_is_computed_again(tiny, monkeypatch):
    whole = tiny.run("whole.h5", block=PATCH)
    interrupted(tiny, monkeypatch, 5, block=PATCH)
    partial = tiny.folder / "out.h5.partial"
    content = bytearray(partial.read_bytes())
    content[
        json.loads((tiny.folder / "out.h5.partial.journal").open("rb").readline())["place"]
    ] ^= 1
    partial.write_bytes(content)
    assert np.array_equal(tiny.run(), whole)


def changed_weights(tiny):
    tiny.weights = replace(
        tiny.weights, parameters={n: a * 2 for n, a in tiny.weights.parameters.items()}
    )


def changed_input(tiny):
    with h5py.File(tiny.folder / "raw.h5", "r+") as file:
        file["raw"][1, 1, 1] += 1


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("change", "changes", "words"),
    [
        (changed_weights, {}, "weights was"),
        (changed_input, {}, "input was"),
        (None, {"patch": (4, 5, 5)}, r"patch was \[4, 5, 6\], now \[4, 5, 5\]"),
        (None, {"block": (9, 5, 6)}, "block was"),
        (None, {"dtype": np.dtype(np.uint8)}, 'dtype was "<f4", now'),
        (None, {"flips": True}, "flips was false, now true"),
        (None, {"logits": True}, "values was"),
        (None, {"roi": Region((0, 0, 0), (9, 9, 9))}, "shape was"),
        (None, {"mirror": False}, "borders was"),
    ],
)
def test_another_job_is_refused(tiny, monkeypatch, change, changes, words):
    interrupted(tiny, monkeypatch, 5, block=PATCH)
    journal = (tiny.folder / "out.h5.partial.journal").read_bytes()
    if change:
        change(tiny)
    with pytest.raises(VolumeError, match=words):
        tiny.run(**({"block": PATCH} | changes))
    assert (tiny.folder / "out.h5.partial.journal").read_bytes() == journal
    tiny.run(overwrite=True, **({"block": PATCH} | changes))


@pytest.mark.slow
def test_seams_are_none_or_found(tiny):
    with tiny.scene().reference as volume:
        job = tiny.job(type(tiny.scene())({"input": volume}, {}), block=PATCH)
        path = tiny.folder / "out.h5"
        there = Destination(path, "p")
        run_job(job, there)
        fine = verify_seams(job, there, 20)
        assert not fine.found
        assert fine.largest < 1e-5
        with h5py.File(path, "r+") as file:
            file["p"][:, :4] += 0.1
        assert verify_seams(job, there, 20).found


def test_memory_that_is_too_small_names_what_would_do(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "rss", lambda: 300 * MIB)  # whatever was planned or freed before
    tiny = small(tmp_path, max_memory=200 * MIB)
    with pytest.raises(PlanError, match=r"at least .* give --max-memory (\d+)MiB") as refused:
        tiny.run(patch=None)
    needed = int(str(refused.value).rpartition("--max-memory ")[2].split("MiB")[0])
    assert small(tmp_path, max_memory=(needed + 20) * MIB).run(patch=None).shape == (2, 9, 17, 19)


@pytest.mark.parametrize(
    ("size", "takes"), [(400, r"take \d"), (999_999, r"take at least \d+\.\d TiB")]
)
def test_patch_that_does_not_fit_is_refused(tmp_path, monkeypatch, size, takes):
    """Without planning its tasks, where feature maps alone are too large: those would be millions."""
    planned, sizes = patch_search.planned_bytes, []

    def noted(layout, settings):
        sizes.append(max(map(max, layout.geometry.output_shapes.values())))
        assert sizes[-1] < 1000
        return planned(layout, settings)

    monkeypatch.setattr(patch_search, "planned_bytes", noted)
    tiny = small(tmp_path, max_memory=3000 * MIB)
    with pytest.raises(PlanError, match=rf"patches of .* {takes}.* would fit"):
        tiny.run(patch=(size,) * 3)
    assert sizes


def test_affinities_are_not_flipped(tiny):
    target = tiny.weights.config.data.target
    kind = type(tiny.weights.config.data)(target={"kind": "affinity"}).target
    assert kind != target
    data = tiny.weights.config.data.model_copy(update={"target": kind})
    config = tiny.weights.config.model_copy(update={"data": data})
    tiny.weights = replace(tiny.weights, config=config)
    with pytest.raises(
        ConfigError, match="flips change what affinities and shape descriptors mean"
    ):
        tiny.run(flips=True)


def test_empty_region_is_refused(tiny):
    with pytest.raises(ShapeError, match="no output voxel"):
        tiny.run(mirror=False, roi=Region((0, 0, 0), (1, 4, 4)))


def test_region_beyond_the_volume_is_refused(tiny):
    with pytest.raises(ShapeError, match=r"goes to .* but .* has only"):
        tiny.run(roi=Region((0, 0, 0), (4, 4, 900)))


@pytest.mark.parametrize(
    ("target", "loss", "told"),
    [
        (ImageTarget(kind="image"), "square", True),
        (LabelsTarget(kind="labels"), "square", True),
        (BoundaryTarget(kind="boundary"), "square", False),
        (ImageTarget(kind="image"), "binomial_cross_entropy", False),
    ],
)
def test_uint8_of_any_values_is_told(tmp_path: Path, target: Any, loss: str, told: bool) -> None:
    tiny = small(tmp_path)
    config = tiny.weights.config
    data = config.data.model_copy(update={"target": target})
    training = config.training.model_copy(update={"loss": loss_keys(loss)})
    tiny.weights = replace(
        tiny.weights, config=config.model_copy(update={"data": data, "training": training})
    )
    with tiny.scene().reference as volume:
        scene = Scene({"input": volume}, {})
        job = tiny.job(scene, dtype=np.dtype(np.uint8))
        assert any("beyond are cut off" in note for note in job.notes) == told
        assert not any("cut off" in note for note in tiny.job(scene).notes)
