"""What a prediction is taken for, refusals before any work, and the labels written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from called import status_of

from znnpy.data.opening import open_volume
from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError
from znnpy.segment import job as jobs
from znnpy.segment import methods
from znnpy.segment.job import Request, meaning, segment
from znnpy.segment.probabilities import probabilities

RNG = np.random.default_rng(0)
OFFSETS = [[-1, 0, 0], [0, -1, 0], [0, 0, -1]]


def bars(count: int = 4) -> np.ndarray:
    """A boundary map with `count` bars of growing width between walls."""
    row = np.concatenate([[1.0, *([0.0] * (n + 1))] for n in range(count)])
    return np.broadcast_to(row, (3, 5, len(row))).astype(np.float32)


def volume(array: Any, neighbours: Any = None) -> ArrayVolume:
    made = ArrayVolume(np.asarray(array), "p.h5:p")
    made.neighbours = neighbours
    return made


def test_labels_are_numbered_and_small_objects_dropped() -> None:
    found = segment(volume(bars()), Request("components"))
    assert found.labels.dtype == np.uint64
    assert found.sizes.tolist() == [15, 30, 45, 60]
    assert np.unique(found.labels).tolist() == [0, 1, 2, 3, 4]
    assert np.array_equal(found.labels > 0, bars() < 0.5)
    fewer = segment(volume(bars()), Request("components", min_size=31))
    assert fewer.sizes.tolist() == [45, 60]
    assert np.unique(fewer.labels).tolist() == [0, 1, 2]
    assert fewer.assigned == pytest.approx(105 / bars().size)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_integers_count_to_their_largest(dtype: Any) -> None:
    top = np.iinfo(dtype).max
    values = probabilities(volume(np.array([[[0, top // 5, top]]], dtype)), (0,))
    np.testing.assert_allclose(values.ravel(), [0, 0.2, 1], atol=0.002)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int8])
def test_a_mask_of_0_and_1_is_doubted(dtype: Any) -> None:
    mask = bars() > 0.5
    for top in (1, 1 if np.iinfo(dtype).max < 256 else 255):
        given = volume(mask.astype(dtype) * dtype(top))
        with pytest.warns(UserWarning, match=f"holds u?int[0-9]+ up to {top}, and .* as bool"):
            assert not segment(given, Request("components", kind="foreground")).sizes.size
    found = segment(volume(mask), Request("components", kind="foreground"))
    again = segment(volume(mask.astype(np.uint8) * 255), Request("components", kind="foreground"))
    assert np.array_equal(found.labels, again.labels)
    assert found.sizes.size == 4


def test_values_that_are_no_probabilities() -> None:
    with pytest.raises(VolumeError, match="holds uint64, as labels do"):
        segment(volume((bars() > 0.5).astype(np.uint64)), Request("components"))
    with pytest.raises(VolumeError, match=r"from -3 to.*without --logits"):
        segment(volume(bars() * -3), Request("components"))
    found = segment(volume(bars() * 1.2 - 0.1), Request("components"))
    assert found.sizes.tolist() == [15, 30, 45, 60]


def test_what_channels_mean() -> None:
    six, three = RNG.random((6, 2, 3, 4)), RNG.random((3, 2, 3, 4))
    offsets = tuple(map(tuple, [*OFFSETS, [-2, 0, 0], [0, -2, 0], [0, 0, -2]]))
    assert meaning(volume(six, offsets), None, ()).kind == "affinity"
    chosen = meaning(volume(six, offsets), None, (3, 1))
    assert (chosen.channels, chosen.offsets) == ((3, 1), ((-2, 0, 0), (0, -1, 0)))
    assert meaning(volume(three), "affinity", ()).offsets == tuple(map(tuple, OFFSETS))
    assert meaning(volume(three), None, (2,)).kind == "boundary"
    with pytest.raises(VolumeError, match=r"3 channels.*--channel"):
        meaning(volume(three), None, ())
    with pytest.raises(VolumeError, match="no attribute offsets"):
        meaning(volume(six), "affinity", ())
    with pytest.raises(VolumeError, match=r"channels 0 to 2.*channel 3"):
        meaning(volume(three), None, (3,))


def test_the_channel_asked_for_is_used() -> None:
    both = np.stack([np.ones_like(bars()), bars()])
    assert segment(volume(both), Request("components", channels=(1,))).sizes.tolist() == [
        15,
        30,
        45,
        60,
    ]
    assert not segment(volume(both), Request("components", channels=(0,))).sizes.size


def test_foreground_is_the_reverse_of_boundary() -> None:
    one = segment(volume(bars()), Request("components", threshold=0.3))
    other = segment(volume(1 - bars()), Request("components", kind="foreground", threshold=0.7))
    assert np.array_equal(one.labels, other.labels)


def test_usual_thresholds() -> None:
    values = np.full((1, 1, 9), 0.3, np.float32)
    values[..., :3], values[..., 6:] = 0.1, 0.9
    assert segment(volume(values), Request("components")).sizes.tolist() == [6]
    found = segment(volume(values), Request("watershed"))
    assert (found.threshold, found.sizes.tolist()) == (0.2, [9])
    found = segment(volume(1 - values), Request("watershed", "foreground"))
    assert (found.threshold, found.sizes.tolist()) == (0.8, [6])


def test_too_little_memory_is_refused_before_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(jobs, "probabilities", never)
    with pytest.raises(VolumeError, match=r"by watershed takes about .* [MG]iB.*only 1000 B"):
        segment(volume(bars()), Request("watershed"), 1000)


def test_usual_methods() -> None:
    both = {
        kind: segment(volume(bars()), Request(kind=kind)).method
        for kind in ("boundary", "foreground")
    }  # type: ignore[arg-type]
    assert both == {"boundary": "agglomerate", "foreground": "components"}


@pytest.mark.parametrize("method", ["components", "agglomerate"])
def test_one_object_of_most_voxels_is_remarked_on(method: str) -> None:
    values = np.ones((6, 30, 30), np.float32)
    values[:, :, 1:5] = values[:, :, 7:] = 0
    with pytest.warns(UserWarning, match=r"object 2 has .*% of the voxels.*lower --threshold"):
        assert len(segment(volume(values), Request(method)).sizes) == 2
    with pytest.warns(UserWarning, match="raise --threshold"):
        segment(volume(np.stack([1 - values] * 3)), Request(method, "affinity"))
    with pytest.warns(UserWarning, match="object 1 has 100% of the voxels"):  # nothing beside it
        assert len(segment(volume(np.zeros_like(values)), Request(method)).sizes) == 1


@pytest.mark.parametrize(
    ("method", "least", "words"),
    [
        ("components", 0, r"below 0.5; take a higher --threshold$"),
        ("agglomerate", 0, r"below 0.2 \(0.4 of the way to --threshold 0.5\); take a higher"),
        ("watershed", 7, r"below 0.2, in 7 voxels at least; .* or a smaller --min-size$"),
    ],
)
def test_no_objects_are_remarked_on(method: str, least: int, words: str) -> None:
    begins = 0.5 if method == "components" else 0.2
    above, below = (np.full((3, 8, 8), begins + by, np.float32) for by in (0.01, -0.01))
    with pytest.warns(
        UserWarning,
        match=f"no objects in p.h5:p: --method {method} begins where values are {words}",
    ):
        assert len(segment(volume(above), Request(method, min_size=least)).sizes) == 0
    with pytest.warns(UserWarning, match="object 1 has 100%"):
        segment(volume(below), Request(method, min_size=least))
    away = np.stack([1 - above] * 3)
    with pytest.warns(UserWarning, match=r"are above 0\.[58].*take a lower --threshold"):
        segment(volume(away), Request(method, "affinity", min_size=least))


def test_no_objects_of_a_method_without_beginning_are_remarked_on() -> None:
    pytest.importorskip("bioimage_cpp")
    one = volume(np.ones((4, 2, 4, 4), np.float32), [*OFFSETS, [0, 0, -3]])
    with pytest.warns(UserWarning, match=r"--method mutex found none, in 33 voxels at least; take"):
        assert len(segment(one, Request("mutex", min_size=33)).sizes) == 0


def test_voxel_sizes_choose_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thick sections each is cut by itself: its fragments are as many as there are sections."""
    seen = []
    monkeypatch.setattr(
        methods,
        "joined",
        lambda _, sizes, *__: seen.append(len(sizes) - 1) or np.arange(len(sizes)),
    )
    values = np.ones((4, 14, 18), np.float32)
    values[:, 2:12, 2:16] = 0
    thick = volume(values)
    thick.resolution = (40, 4, 4)
    for it in (volume(values), thick):
        segment(it, Request())
    assert seen == [1, 4]


def test_mutex_of_a_boundary_map() -> None:
    with pytest.raises(VolumeError, match="needs affinities"):
        segment(volume(bars()), Request("mutex"))


@pytest.fixture
def prediction(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "p.h5", "w") as file:
        file["prediction"] = bars()[None]
        file["prediction"].attrs.update({"resolution": [40.0, 4, 4], "offset": [80.0, 0, 12]})
    return tmp_path / "p.h5"


def run(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    status = status_of(*words)
    out, errors = capsys.readouterr()
    assert status == code, errors
    return out, errors


def test_one_object_is_one(
    capsys: pytest.CaptureFixture[str], prediction: Path, tmp_path: Path
) -> None:
    with h5py.File(prediction, "r+") as file:
        file["prediction"][:, :, :, 2:] = 1  # boundary
    words = ("--method", "components", "--output", tmp_path / "s.h5")
    out, _ = run(capsys, "segment", prediction, *words)
    assert ": 1 object, " in out


def test_command_writes_hdf5_and_zarr(
    capsys: pytest.CaptureFixture[str], prediction: Path, tmp_path: Path
) -> None:
    words = ("segment", prediction, "--method", "components", "--min-size", 16, "--output")
    out, _ = run(capsys, *words, tmp_path / "s.h5")
    assert "3 objects" in out
    run(capsys, *words, tmp_path / "s.zarr")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["p.h5", "s.h5", "s.zarr"]
    found = []
    for name in ("s.h5", "s.zarr"):
        with open_volume(tmp_path / name, role="labels") as labels:
            assert labels.dtype == np.uint64
            assert (labels.resolution, labels.offset) == ((40, 4, 4), (80, 0, 12))
            found.append(labels.read_all()[0])
    assert np.array_equal(*found)
    assert np.unique(found[0]).tolist() == [0, 1, 2, 3]
    with h5py.File(tmp_path / "s.h5") as file:
        assert file["volumes/labels/neuron_ids"].attrs["method"] == "components"
    assert zarr.open_array(tmp_path / "s.zarr/0").ndim == 3


def test_overwriting_removes_no_other_data(
    capsys: pytest.CaptureFixture[str], prediction: Path, tmp_path: Path
) -> None:
    words = ["segment", prediction, "--output", tmp_path / "s.h5", "--overwrite"]
    run(capsys, *words)
    run(capsys, *words)
    with h5py.File(tmp_path / "s.h5", "a") as file:
        file["volumes/raw"] = np.zeros(3)
    _, errors = run(capsys, *words, code=1)
    assert "holds volumes/raw too" in errors
    (tmp_path / "s.h5").write_text("notes")
    assert "is no HDF5 file" in run(capsys, *words, code=1)[1]
    assert (tmp_path / "s.h5").read_text() == "notes"


def test_command_refuses(
    capsys: pytest.CaptureFixture[str], prediction: Path, tmp_path: Path
) -> None:
    def refused(*words: object, code: int = 1) -> str:
        before = sorted(tmp_path.iterdir())
        out, errors = run(capsys, "segment", *words, code=code)
        assert out == ""
        assert sorted(tmp_path.iterdir()) == before
        return errors

    good = ["--output", tmp_path / "s.h5"]
    assert "exists already" in refused(prediction, "--output", prediction)
    assert "which is read" in refused(prediction, "--output", prediction, "--overwrite")
    assert "no folder" in refused(prediction, "--output", tmp_path / "no" / "s.h5")
    assert "a PNG file holds one channel of one slice" in refused(
        prediction, "--output", tmp_path / "s.png"
    )
    assert "does not exist" in refused(tmp_path / "q.h5", *good)
    assert "only 10.0 B" in refused(prediction, *good, "--max-memory", "10").replace(
        "10 B", "10.0 B"
    )
    assert "needs affinities" in refused(prediction, *good, "--method", "mutex")
    assert "not like 8GiB" in refused(prediction, *good, "--max-memory", "much", code=2)
    assert "Usage" in refused(prediction, code=2)
    assert "--method" in refused(prediction, *good, "--method", "magic", code=2)
    assert "--threshold" in refused(prediction, *good, "--threshold", "2", code=2)
