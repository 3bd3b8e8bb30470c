"""Class numbers written at once are those of the values that would else be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pytest
import zarr
from jobs import LAYERS, Small, small

from znnpy.config.models import AffinityTarget, LabelsTarget, LsdTarget, MaskTarget
from znnpy.data.class_labels import Numbering
from znnpy.data.opening import open_volume
from znnpy.data.scene import Scene
from znnpy.data.writing import hdf5_output
from znnpy.data.writing.destination import Destination
from znnpy.errors import ConfigError, VolumeError
from znnpy.infer import tiling
from znnpy.infer.block_writer import run_job
from znnpy.learning.voxelwise import Softmax

LABELS: dict[str, Any] = {"numbering": Numbering(), "dtype": np.dtype(np.uint8)}


@pytest.fixture
def tiny(tmp_path: Path) -> Small:
    return small(tmp_path)


@pytest.mark.parametrize(
    "more", [{}, {"block": (3, 7, 6)}, {"flips": True}, {"block": (1, 17, 19)}]
)
def test_labels_are_the_largest_channels(tiny: Small, more: dict[str, Any]) -> None:
    wanted = tiny.run("values.h5", **more).argmax(axis=0)
    found = tiny.run("labels.h5", **LABELS, **more)
    assert found.dtype == np.uint8
    assert np.array_equal(found, wanted)
    assert 0 < found.mean() < 1
    shifted = tiny.run("shifted.h5", **{**LABELS, "numbering": Numbering(7)}, **more)
    assert np.array_equal(shifted, wanted + 7)


def test_regions_paint_one_over_the_other(tiny: Small) -> None:
    """And channels that may overlap, of which none wins, are no classes without them."""
    values = tiny.run("values.h5")
    wanted = np.where(values[1] > 0.5, 3, np.where(values[0] > 0.5, 5, 0))
    assert set(np.unique(wanted)) == {0, 3, 5}
    painted = {**LABELS, "numbering": Numbering(regions=(5, 3))}
    assert np.array_equal(tiny.run("labels.h5", **painted), wanted)
    config = tiny.weights.config
    data = config.data.model_copy(update={"target": MaskTarget(kind="mask")})
    tiny.weights.__dict__["config"] = config.model_copy(update={"data": data})
    assert np.array_equal(tiny.run("same.h5", **painted), wanted)
    with pytest.raises(ConfigError, match=r"may overlap.*inference\.regions=\[1,2\]"):
        tiny.run("l.h5", **LABELS)
    training = config.training.model_copy(update={"loss": Softmax(kind="softmax")})
    tiny.weights.__dict__["config"] = config.model_copy(update={"data": data, "training": training})
    assert np.array_equal(tiny.run("l.h5", **LABELS), values.argmax(axis=0))


def test_windows_are_averaged_before(tiny: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiling, "patch_dependence", lambda network: "so the test says")
    wanted = tiny.run("values.h5", block=(4, 10, 6)).argmax(axis=0)
    assert np.array_equal(tiny.run("labels.h5", block=(4, 10, 6), **LABELS), wanted)


def test_one_channel_is_decided_at_a_half(tmp_path: Path) -> None:
    layers = [*LAYERS[:2], {"conv": {"channels": 1, "size": [3, 2, 3]}}]
    tiny = small(tmp_path, network={"layers": layers})
    wanted = tiny.run("values.h5")[0] > 0.5
    assert wanted.any()
    assert np.array_equal(tiny.run("labels.h5", **LABELS), wanted)


def test_what_a_mask_leaves_out_is_0(tiny: Small) -> None:
    wanted = tiny.run("values.h5").argmax(axis=0) + 1
    with h5py.File(tiny.folder / "mask.h5", "w") as file:
        file["mask"] = np.random.default_rng(1).integers(0, 2, wanted.shape).astype(np.uint8)
    with (
        open_volume(tiny.folder / "raw.h5") as raw,
        open_volume(tiny.folder / "mask.h5", "mask") as mask,
    ):
        job = tiny.job(
            Scene({"input": raw}, {}, {"mask": mask}),
            "l.h5",
            **{**LABELS, "numbering": Numbering(1)},
        )
        run_job(job, Destination(tiny.folder / "l.h5", "p"))
        inside = mask.read_all()[0] > 0
    with h5py.File(tiny.folder / "l.h5") as file:
        assert np.array_equal(file["p"][...], np.where(inside, wanted, 0))


def test_other_formats(tiny: Small) -> None:
    wanted = tiny.run("values.h5").argmax(axis=0)
    for name in ("l.zarr", "l.nii.gz"):
        with tiny.scene().reference as volume:
            job = tiny.job(Scene({"input": volume}, {}), name, **LABELS)
            run_job(job, Destination(tiny.folder / name, ""))
    assert np.array_equal(zarr.open_array(tiny.folder / "l.zarr", path="0", mode="r")[...], wanted)
    assert np.array_equal(np.asarray(nibabel.load(tiny.folder / "l.nii.gz").dataobj).T, wanted)


def test_a_stopped_one_goes_on(tiny: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = tiny.run("whole.h5", block=(3, 7, 6), **LABELS)
    real, count = hdf5_output.Hdf5Output.write, []

    def write(self: Any, lower: Any, values: Any) -> None:
        count.append(lower)
        if len(count) == 4:
            raise KeyboardInterrupt
        real(self, lower, values)

    with monkeypatch.context() as patched:
        patched.setattr(hdf5_output.Hdf5Output, "write", write)
        with pytest.raises(KeyboardInterrupt):
            tiny.run("l.h5", block=(3, 7, 6), **LABELS)
    with pytest.raises(VolumeError, match="begun by another job"):
        tiny.run("l.h5", block=(3, 7, 6))
    with pytest.raises(
        VolumeError, match=r"values was .*class numbers from 0.*now .*class numbers from 1"
    ):
        tiny.run("l.h5", block=(3, 7, 6), **{**LABELS, "numbering": Numbering(1)})
    regions = {**LABELS, "numbering": Numbering(regions=(1, 2))}
    with pytest.raises(VolumeError, match=r"now .regions \(1, 2\) by"):
        tiny.run("l.h5", block=(3, 7, 6), **regions)
    assert np.array_equal(tiny.run("l.h5", block=(3, 7, 6), **LABELS), wanted)


def test_blocks_take_less_memory(tmp_path: Path) -> None:
    """Of 40 classes labels of a block take a 160th of its values."""
    layers = [*LAYERS[:2], {"conv": {"channels": 40, "size": [3, 2, 3]}}]
    tiny = small(tmp_path, network={"layers": layers})
    with tiny.scene().reference as volume:
        scene = Scene({"input": volume}, {})
        values, labels = tiny.job(scene), tiny.job(scene, **LABELS)
    assert labels.spec.nbytes * 160 == values.spec.nbytes
    assert labels.spec.shape == (1, *values.spec.shape[1:])
    assert labels.memory < values.memory


def test_affinities_are_no_classes(tiny: Small) -> None:
    data = tiny.weights.config.data
    for target, refusal in (
        (AffinityTarget(kind="affinity"), "affinities are no classes"),
        (LsdTarget(kind="lsd"), "shape descriptors are no classes"),
        (LabelsTarget(kind="labels"), ""),
    ):
        changed = data.model_copy(update={"target": target})
        config = tiny.weights.config.model_copy(update={"data": changed})
        tiny.weights.__dict__["config"] = config
        if refusal:
            with pytest.raises(ConfigError, match=refusal):
                tiny.run("a.h5", **LABELS)
        else:
            tiny.run("l.h5", **LABELS)
