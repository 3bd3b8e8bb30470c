"""What is done with a finished run: `predict` and `evaluate` as their users call them."""

import json
import resource
import sys

import h5py
import numpy as np
import pytest
from small_run import apart, write_config, znnpy

from znnpy.data.opening import open_volume


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    znnpy("train", write_config(folder, iterations=40))
    return folder


def predicted(path, dataset="prediction"):
    with h5py.File(path) as file:
        return file[dataset][:], dict(file[dataset].attrs)


@pytest.mark.slow
def test_predict_by_blocks_equals_one_piece(folder, tmp_path):
    words = ["predict", folder / "run", "--input", f"{folder / 'data.h5'}:raw", "--output"]
    znnpy(*words, tmp_path / "one.h5")
    znnpy(*words, f"{tmp_path / 'blocks.h5'}:volumes/p", "--block", "5,7,6", "--threads", 1)
    one, attributes = predicted(tmp_path / "one.h5")
    blocks, _ = predicted(tmp_path / "blocks.h5", "volumes/p")
    assert one.dtype == np.float32
    assert one.shape == (1, 18, 20, 20)
    assert np.array_equal(one, blocks)
    assert one.min() >= 0
    assert one.max() <= 1
    assert attributes["iteration"] == 40
    assert attributes["offset"].tolist() == [1, 2, 2]
    znnpy(*words, tmp_path / "mirror.h5", "--borders", "mirror", "--dtype", "uint8")
    mirrored, _ = predicted(tmp_path / "mirror.h5")
    assert mirrored.shape == (1, 20, 25, 25)
    inner = mirrored[:, 1:19, 2:22, 2:22]
    assert np.array_equal(inner, np.rint(one * 255).astype(np.uint8))


def test_predict_refuses_without_leaving_anything(folder, tmp_path):
    words = ["predict", folder / "run", "--input", f"{folder / 'data.h5'}:raw", "--output"]
    znnpy(*words, tmp_path / "there.h5")
    before = (tmp_path / "there.h5").read_bytes()
    done = znnpy(*words, tmp_path / "there.h5", code=1)
    assert "exists already" in done.stderr
    znnpy(*words, tmp_path / "block.h5", "--block", "0,1,2", code=2)
    done = znnpy(*words[:3], f"{folder / 'data.h5'}:labelz", "--output", tmp_path / "x.h5", code=1)
    assert "labelz" in done.stderr
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert names == ["there.h5", "there.h5.log.jsonl"]
    assert (tmp_path / "there.h5").read_bytes() == before


def test_a_mask_that_wants_nothing_is_told(folder, tmp_path):
    with h5py.File(tmp_path / "mask.h5", "w") as file:
        file["none"] = np.zeros((20, 25, 25), np.uint8)
        file["corner"] = np.zeros((20, 25, 25), np.uint8)
        file["corner"][19, 24, 24] = 1  # which sees the border
    words = ["predict", folder / "run", "--input", f"{folder / 'data.h5'}:raw", "--output"]
    for name in ("none", "corner"):
        masked = [tmp_path / f"{name}.h5", "--mask", f"{tmp_path / 'mask.h5'}:{name}"]
        for more in (["--dry-run"], []):
            done = znnpy(*words, *masked, *more)
            (line,) = [line for line in done.stderr.splitlines() if "mask.h5" in line]
            assert f"mask.h5:{name} is 0 wherever" in line
        assert not predicted(tmp_path / f"{name}.h5")[0].any()
    done = znnpy(*words, *masked[:2], f"{folder / 'data.h5'}:raw", "--dry-run", "--overwrite")
    assert "wherever" not in done.stderr


@pytest.mark.slow
def test_predict_parts_under_a_mask_with_flips(folder, tmp_path):
    mask = np.zeros((20, 25, 25), np.uint8)
    mask[3:9, 4:12, 5:20] = 1
    with h5py.File(tmp_path / "mask.h5", "w") as file:
        file["m"] = mask
    words = ["predict", folder / "run", "--input", f"{folder / 'data.h5'}:raw"]
    words += ["--borders", "mirror", "--augment", "flips", "--patch", "6,7,8", "--output"]
    dry = znnpy(*words, tmp_path / "one.h5", "--dry-run", "--mask", f"{tmp_path / 'mask.h5'}:m")
    for word in ("blocks", "patch", "6 x 7 x 8", "halo", "2 x 5 x 5", "iB", "voxels/s"):
        assert word in dry.stdout
    assert [entry.name for entry in tmp_path.iterdir()] == ["mask.h5"]
    znnpy(*words, tmp_path / "one.h5")
    some = [f"{tmp_path / 'part.h5'}:p", "--roi", "2:18,3:22,4:25", "--verify-seams", 5]
    done = znnpy(*words, *some, "--mask", f"{tmp_path / 'mask.h5'}:m")
    assert "5 places on borders computed again" in done.stdout
    one, _ = predicted(tmp_path / "one.h5")
    part, attributes = predicted(tmp_path / "part.h5", "p")
    assert np.array_equal(part, (one * mask)[:, 2:18, 3:22, 4:25])
    assert attributes["offset"].tolist() == [2, 3, 4]


@pytest.mark.slow
def test_file_size_limit_is_one_clear_line(folder, tmp_path):
    words = ["predict", folder / "run", "--input", f"{folder / 'data.h5'}:raw"]
    words += ["--output", tmp_path / "out.h5"]

    def limited() -> None:
        # What is imported meanwhile would be kept cut off, and fail whoever imports it next.
        sys.dont_write_bytecode = True
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))

    code, _, said = apart(*words, before=limited)
    assert code == 1
    assert said.count("\n") == 1
    assert "out.h5 cannot be written: File too large" in said
    assert not list(tmp_path.glob("*out.h5.partial*"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["in.h5", "in.zarr"])
def test_predict_never_replaces_its_input(folder, tmp_path, name):
    zarr = pytest.importorskip("zarr")
    with h5py.File(folder / "data.h5") as file, h5py.File(tmp_path / "in.h5", "w") as copy:
        copy["raw"] = file["raw"][:]
        zarr.open_group(tmp_path / "in.zarr", mode="w").create_array("raw", data=file["raw"][:])
    path = tmp_path / name
    words = ["predict", folder / "run", "--input", f"{path}:raw", "--output", f"{path}:p"]
    assert "which is read" in znnpy(*words, "--overwrite", code=1).stderr
    with open_volume(f"{path}:raw") as volume:
        assert volume.shape == (1, 20, 25, 25)


def test_evaluate_repeats_what_training_found(folder):
    done = znnpy("evaluate", folder / "run", "--json")
    found = json.loads(done.stdout)
    assert found.items() <= json.loads((folder / "run/result.json").read_text()).items()
    network = found["evaluations"][0]["scores"]["network"]
    assert {"voxel_error", "average_precision", "adapted_rand_error", "voi"} <= set(network)


@pytest.mark.slow
def test_evaluate_on_a_volume_given_in_the_line(folder):
    data = folder / "data.h5"
    words = ["evaluate", folder / "run", "--volume", f"{data}:raw", "--labels", f"{data}:labels"]
    done = znnpy(*words, "--json", "--threshold", 0.3, "--set", "data.border=mirror")
    scores = json.loads(done.stdout)["evaluations"][0]["scores"]
    assert scores["network"]["threshold"] == 0.3
    assert "average precision" in znnpy(*words).stdout
    assert "go together" in znnpy(*words[:4], code=2).stderr


@pytest.mark.slow
def test_view_and_segment(folder, tmp_path):
    done = znnpy("view", folder / "run", "--slices", 2, "--output", tmp_path / "pictures")
    assert len(done.stdout.split()) == len(list((tmp_path / "pictures").iterdir())) == 2
    words = ["predict", folder / "run", "--input", f"{folder / 'data.h5'}:raw", "--output"]
    done = znnpy(*words, tmp_path / "p.zarr", "--block", "5,7,6", "--verify-seams", 2)
    assert f"{tmp_path / 'p.zarr'}  (1, 18, 20, 20)" in done.stdout
    assert (tmp_path / "p.zarr" / "0" / "zarr.json").exists()
    znnpy(*words, tmp_path / "p.h5")
    for name in ("p.zarr", "p.h5"):
        znnpy("segment", tmp_path / name, "--output", tmp_path / f"{name}.labels.h5")
    one, attributes = predicted(tmp_path / "p.zarr.labels.h5", "volumes/labels/neuron_ids")
    other, _ = predicted(tmp_path / "p.h5.labels.h5", "volumes/labels/neuron_ids")
    assert np.array_equal(one, other)
    assert attributes["offset"].tolist() == [1, 2, 2]


@pytest.mark.slow
def test_volumes_of_all_formats_score_the_same(folder, tmp_path):
    tifffile, zarr = pytest.importorskip("tifffile"), pytest.importorskip("zarr")
    with h5py.File(folder / "data.h5") as file:
        raw, labels = file["raw"][:], file["labels"][:]
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    group.create_array("raw", data=raw, chunks=(7, 9, 8))
    group.create_array("labels", data=labels, shards=(8, 16, 16), chunks=(4, 8, 8))
    tifffile.imwrite(tmp_path / "raw.tif", raw, photometric="minisblack", compression="zlib")
    (tmp_path / "planes").mkdir()
    for z, plane in enumerate(labels):
        tifffile.imwrite(tmp_path / "planes" / f"{z}.tif", plane)
    pairs = [
        (f"{folder / 'data.h5'}:raw", f"{folder / 'data.h5'}:labels"),
        (f"{tmp_path / 'data.zarr'}:raw", f"{tmp_path / 'data.zarr'}:labels"),
        (tmp_path / "raw.tif", tmp_path / "planes"),
    ]
    found = []
    for image, truth in pairs:
        words = ["evaluate", folder / "run", "--volume", image, "--labels", truth, "--json"]
        more = ("--set", "data.in_memory=false", "--threshold", 0.5)
        found.append(json.loads(znnpy(*words, *more).stdout))
        found[-1]["evaluations"][0].pop("volume")
    assert found[0] == found[1] == found[2]
