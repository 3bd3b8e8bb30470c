"""`znnpy predict` of folders and patterns of images: which files make a case, and cases that are done stay."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pytest
from called import status_of
from exported_runs import run_of

import znnpy
from znnpy.cli.predict_sets import Case, cases_of
from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

NET = {"layers": [{"conv": {"channels": 1, "size": 3}}]}
RNG = np.random.default_rng(0)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run_of(tmp_path / "run", NET, training={"output_shape": [4, 6, 6]})
    return tmp_path / "run"


def stack(path: Path, **datasets: Any) -> np.ndarray:
    path.parent.mkdir(exist_ok=True, parents=True)
    raw = RNG.integers(0, 255, (7, 9, 8)).astype(np.uint8)
    with h5py.File(path, "w") as file:
        for name, array in ({"raw": raw} | datasets).items():
            file[name] = array
    return raw


def test_files_of_one_name_belong_together(tmp_path: Path) -> None:
    for name in ("a1", "a10", "a2"):
        stack(tmp_path / f"ct/{name}.h5")
        stack(tmp_path / f"mask/{name}.h5")
    found = cases_of({"": f"{tmp_path}/ct:raw"}, f"{tmp_path}/mask:raw", f"{tmp_path}/out")
    assert found[1] == Case(
        {"": f"{tmp_path}/ct/a2.h5:raw"}, f"{tmp_path}/mask/a2.h5:raw", f"{tmp_path}/out/a2.h5"
    )
    assert [Path(it.output).name for it in found] == ["a1.h5", "a2.h5", "a10.h5"]
    again = cases_of(
        {"": f"{tmp_path}/ct/*.h5:raw"}, f"{tmp_path}/mask/*.h5:raw", f"{tmp_path}/out"
    )
    assert again == found


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("a.nii.gz", "a.nii.gz"),
        ("a.npy", "a.h5"),
        ("a.rec", "a.h5"),
        ("a.n5", "a.n5"),
        ("a.tif", "a.tif"),
    ],
)
def test_outputs_are_of_the_format_of_their_images_where_it_is_written(
    name: str, output: str, tmp_path: Path
) -> None:
    (tmp_path / name).touch()
    (case,) = cases_of({"": f"{tmp_path}/a.*"}, None, "out")
    assert case == Case({"": f"{tmp_path}/{name}"}, None, f"out/{output}")


def test_a_single_image_stays_as_it_was_named(tmp_path: Path) -> None:
    stack(tmp_path / "a.h5")
    for text in (f"{tmp_path}/a.h5:raw", "s3://bucket/a.zarr:0", f"{tmp_path}/b.zarr"):
        assert cases_of({"": text}, None, "out.h5") == [Case({"": text}, None, "out.h5")]
    # A folder of planes is one volume.
    (tmp_path / "planes").mkdir()
    (tmp_path / "planes/1.tif").touch()
    assert len(cases_of({"": f"{tmp_path}/planes"}, None, "out.h5")) == 1


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    for name in ("a/1.h5", "b/1.h5", "a/2.h5"):
        stack(tmp_path / name)
    with pytest.raises(
        VolumeError, match=r"names 2 images: name a folder to write, not the file out\.h5"
    ):
        cases_of({"": f"{tmp_path}/a"}, None, "out.h5")
    with pytest.raises(VolumeError, match=r"a/1\.h5 and .*b/1\.h5 would both be written"):
        cases_of({"": f"{tmp_path}/**/1.h5"}, None, "out")
    with pytest.raises(VolumeError, match="no mask for"):
        cases_of({"": f"{tmp_path}/a"}, f"{tmp_path}/b", "out")
    with pytest.raises(VolumeError, match="no file is named"):
        cases_of({"": f"{tmp_path}/c*.h5"}, None, "out")


def test_cases_are_predicted_and_done_ones_stay(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raws = {name: stack(tmp_path / f"in/{name}.h5") for name in ("a", "b", "c")}
    line = [
        "predict",
        run,
        "--input",
        tmp_path / "in",
        "--output",
        tmp_path / "out/new",
        "--threads",
        1,
    ]
    (tmp_path / "in/b.h5").write_bytes(b"damaged")
    assert status_of(*line) != 0
    assert "b.h5" in capsys.readouterr().err
    assert {it.name for it in (tmp_path / "out/new").glob("*.h5")} == {"a.h5", "c.h5"}
    done = (tmp_path / "out/new/a.h5").stat().st_mtime_ns
    raws["b"] = stack(tmp_path / "in/b.h5")
    assert status_of(*line) == 0
    assert "2 of 3 cases are written already" in capsys.readouterr().out
    assert (tmp_path / "out/new/a.h5").stat().st_mtime_ns == done
    opened = znnpy.open_run(run)
    for name, raw in raws.items():
        with h5py.File(tmp_path / f"out/new/{name}.h5") as file:
            np.testing.assert_array_equal(file["prediction"], opened.predict(raw, quiet=True))
    assert status_of(*line) == 0
    assert "3 of 3 cases" in capsys.readouterr().out


def test_an_unfit_image_stops_no_other(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged one, one that is smaller than the net's field of view, and one of other channels."""
    stack(tmp_path / "i/d.h5")
    (tmp_path / "i/a.h5").write_bytes(b"no volume")
    for name, shape in (("b", (2, 2, 2)), ("c", (3, 7, 9, 8))):
        with h5py.File(tmp_path / f"i/{name}.h5", "w") as file:
            file["raw"] = np.zeros(shape, np.uint8)
    line = ("predict", run, "--input", f"{tmp_path}/i", "--output", tmp_path / "o", "--threads", 1)
    assert status_of(*line) == 1
    said = capsys.readouterr().err
    assert "3 of 4 cases could not be predicted" in said
    assert all(f"i/{name}.h5" in said.split("3 of 4")[0] for name in "abc")
    assert [it.name for it in (tmp_path / "o").glob("*.h5")] == ["d.h5"]


@pytest.mark.parametrize("data", [{}, {"prepare": {"crop": False}}], ids=["volumes", "scans"])
def test_an_image_of_which_a_net_makes_no_numbers_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: dict[str, Any]
) -> None:
    """Nor does it change what the same model makes of the next one."""
    net = {"layers": [{"conv": {"channels": n, "size": 3, "padding": "same"}} for n in (3, 2)]}
    training = {"output_shape": [4, 6, 6], "loss": "softmax"}
    run_of(tmp_path / "run", net, data={"normalize": "none", **data}, training=training)
    for name, most in (("a", 3e38), ("b", 9)):
        array = np.full((8, 9, 7), most, np.float32) * RNG.uniform(0.9, 1, (8, 9, 7)).astype("f4")
        place = tmp_path / f"in/{name}.nii"
        place.parent.mkdir(exist_ok=True)
        nibabel.Nifti1Image(array, np.eye(4)).to_filename(place)
    line = ["predict", tmp_path / "run", "--labels", "--threads", 1, "--input"]
    assert status_of(*line, tmp_path / "in", "--output", tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert "in/a.nii: the network predicts values that are NaN or infinite" in said
    assert f"1 of 2 cases could not be predicted: {tmp_path}/in/a.nii; the same" in said
    # Nothing is in the way of a better image under this name.
    assert {it.name for it in (tmp_path / "out").glob("a*")} <= {"a.nii.log.jsonl"}
    assert status_of(*line, tmp_path / "in/b.nii", "--output", tmp_path / "b.nii") == 0
    assert (tmp_path / "out/b.nii").read_bytes() == (tmp_path / "b.nii").read_bytes()


def refused(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("os.posix_fallocate", "no room on the disk"),
        ("znnpy.infer.block_writer.open_output", "No space left"),
    ],
)
def test_a_full_disk_ends_all(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    fails: str, said: str,
) -> None:  # fmt: skip
    for name in "ab":
        stack(tmp_path / f"i/{name}.h5")
    monkeypatch.setattr(fails, refused)
    line = ("predict", run, "--input", f"{tmp_path}/i", "--output", tmp_path / "o", "--threads", 1)
    assert status_of(*line) == 1
    found = capsys.readouterr().err
    assert found.count(said) == 1
    assert f"{tmp_path}/o" in found
    assert "could not be predicted" not in found


def test_images_keep_their_place(run: Path, tmp_path: Path) -> None:
    affine = np.diag([0.8, 0.9, 1.3, 1.0])
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        image = nibabel.Nifti1Image(RNG.integers(0, 9, (8, 9, 7)).astype(np.int16), affine)
        image.to_filename(tmp_path / f"in/{name}.nii.gz")
    words = [
        "--input",
        f"{tmp_path}/in/*.nii.gz",
        "--output",
        tmp_path / "out",
        "--borders",
        "mirror",
    ]
    assert status_of("predict", run, *words, "--labels", "--threads", 1) == 0
    for name in ("a", "b"):
        found = nibabel.load(tmp_path / f"out/{name}.nii.gz")
        np.testing.assert_allclose(found.affine, affine, atol=1e-6)
        assert found.shape == (8, 9, 7)


def test_nothing_is_written_by_a_dry_run(run: Path, tmp_path: Path) -> None:
    stack(tmp_path / "in/a.h5")
    words = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--dry-run", "--threads", 1]
    assert status_of("predict", run, *words) == 0
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_way_of_the_folder(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stack(tmp_path / "in/a.h5")
    (tmp_path / "out").touch()
    line = ["predict", run, "--input", tmp_path / "in", "--output", tmp_path / "out"]
    assert status_of(*line, "--threads", 1) != 0
    assert "cannot be made a folder" in capsys.readouterr().err


def test_classes_that_begin_at_1_are_segmented_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = {"layers": [{"conv": {"channels": 3, "size": 1}}]}
    data = {"target": {"kind": "labels", "first": 1}}
    training = {"output_shape": [4, 6, 6], "loss": "softmax"}
    run_of(tmp_path / "run", net, data=data, training=training)
    stack(tmp_path / "a.h5")
    line = ["predict", tmp_path / "run", "--input", tmp_path / "a.h5", "--threads", 1]
    assert status_of(*line, "--output", tmp_path / "values.n5") == 0
    said = capsys.readouterr().err.split("next: znnpy ")[1]
    # The file says so itself.
    assert "--method classes" in said
    assert "--first" not in said
    assert status_of(*line, "--output", tmp_path / "labels.n5", "--labels") == 0
    assert "next: znnpy view" in capsys.readouterr().err
    objects = ["segment", tmp_path / "values.n5", "--output", tmp_path / "found.n5"]
    assert status_of(*objects, "--method", "classes") == 0
    found, wanted = (open_volume(tmp_path / f"{it}.n5").read_all() for it in ("found", "labels"))
    np.testing.assert_array_equal(found, wanted)
    assert set(np.unique(wanted)) <= {1, 2, 3}
