"""`znnpy init --for`: configs that load, fit what was looked at, and train."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
from called import status_of
from PIL import Image

from znnpy.config import load_config
from znnpy.config.models import AffinityTarget, BoundaryTarget, Config
from znnpy.config.normalize_section import DeviationNormalize, FixedNormalize
from znnpy.network import trained_network
from znnpy.train.progress import Quiet
from znnpy.train.recipe_sections import Seen
from znnpy.train.recipes import RECIPES
from znnpy.train.session import train

PLAIN = DeviationNormalize(kind="mean_std")
OBJECTS = np.kron(np.arange(1, 25).reshape(6, 2, 2), np.ones((15, 40, 40), np.uint16))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    rng = np.random.default_rng(0)
    with h5py.File("v.h5", "w") as file:
        file["raw"] = rng.integers(0, 255, OBJECTS.shape).astype(np.uint8)
        file["labels"] = OBJECTS
        file["classes"] = OBJECTS % 3
        file["thick"] = rng.integers(0, 255, (20, 80, 80)).astype(np.uint8)
        file["thick"].attrs["resolution"] = (40.0, 4, 4)
        file["objects"] = OBJECTS[:20]
        file["digits"] = rng.integers(0, 255, (200, 28, 28)).astype(np.uint8)
        file["numbers"] = rng.integers(0, 10, 200)
        file["values"] = rng.random(OBJECTS.shape).astype(np.float32)
    return tmp_path


def written(purpose: str, image: str, labels: str | None, *changed: str) -> Config:
    named = ("--labels", labels) if labels else ()
    words = ("--for", purpose, "--data", image, *named, "--overwrite")
    assert status_of("init", "configs/c.yaml", *words) == 0
    return load_config("configs/c.yaml", changed)


@pytest.mark.parametrize("purpose", RECIPES)
@pytest.mark.parametrize(
    "seen",
    [
        Seen(),
        Seen(extent=(50, 100, 200)),
        Seen(extent=(125, 1250, 1250), resolution=(40, 4, 4), channels=3, classes=4, cores=96),
        Seen(extent=(1, 300, 301), image='odd "name".h5:raw', shares={"boundary": 0.2}),
        Seen(extent=(3, 17, 900), memory=1 << 30),
    ],
    ids=lambda seen: str(seen.extent),
)
def test_each_loads_whatever_the_data(purpose: str, seen: Seen) -> None:
    Path("c.yaml").write_text(RECIPES[purpose].text(seen))
    config = load_config("c.yaml")
    assert trained_network(config)
    assert config.training.rebalance == "none"
    if window := config.inference.window:
        patch = config.training.output_shape
        assert window[0] <= min(patch[0], 12)
        assert all(a >= b for a, b in zip(window[1:], patch[1:], strict=True))
    if seen.extent and purpose != "classification":
        shape, sizes = config.training.output_shape, zip(seen.extent, config.training.output_shape)  # noqa: B905
        assert all(size <= whole for whole, size in sizes), shape


@pytest.mark.parametrize("purpose", RECIPES)
def test_no_filter_reaches_beyond_a_picture(purpose: str) -> None:
    """Taps along z would be multiplied by padding alone, and neighbours there are none."""
    Path("c.yaml").write_text(RECIPES[purpose].text(Seen(extent=(1, 300, 301), several=True)))
    config = load_config("c.yaml")
    assert {edge.size[0] for edge in trained_network(config).edges if hasattr(edge, "size")} == {1}
    if isinstance(config.data.target, AffinityTarget):
        assert config.data.target.offsets == ((0, -1, 0), (0, 0, -1), (0, -6, 0), (0, 0, -6))


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("purpose", "image", "labels"),
    [
        ("membranes", "v.h5:raw", "v.h5:labels"),
        ("membranes", "v.h5:thick", "v.h5:objects"),
        ("affinities", "v.h5:raw", "v.h5:labels"),
        ("2d", "v.h5:raw", "v.h5:labels"),
        ("semantic", "v.h5:raw", "v.h5:classes"),
        ("classification", "v.h5:digits", "v.h5:numbers"),
    ],
)
def test_each_trains(purpose: str, image: str, labels: str) -> None:
    small = ["training.iterations=2", "training.conv=direct", "run.threads=1"]
    patch = {"classification": "1", "2d": "[1, 16, 16]"}.get(purpose, "[4, 16, 16]")
    wide = "[1, 40, 40]" if purpose == "2d" else "[12, 40, 40]"
    window = [] if purpose == "classification" else [f"inference.window={wide}"]
    shape = [f"training.output_shape={patch}", "training.validation.patches=2"]
    shape += ["training.schedule={kind: cosine, warmup: 1}", "training.validation.every=1"]
    config = written(purpose, image, labels, *small, *shape, *window)
    assert train(config, reporter=Quiet()).finished


def test_what_is_seen_is_written() -> None:
    config = written("membranes", "v.h5", "v.h5")
    text = Path("configs/c.yaml").read_text()
    assert "../v.h5:raw" in text
    known = BoundaryTarget(kind="boundary", thickness=1)
    assert config.data.target == known
    assert config.data.train[0].slices == (0, 66)
    assert config.data.validation[0].slices == (66, 90)
    assert "% boundary" in text
    thick = written("membranes", "v.h5:thick", "v.h5:objects")
    assert thick.network.unet is not None
    assert thick.network.unet.down == ((1, 2, 2),)
    assert thick.network.unet.first_size == ((1, 3, 3),)
    classes = written("semantic", "v.h5:raw", "v.h5:classes")
    assert classes.network.unet is not None
    assert classes.network.unet.outputs == 3


@pytest.mark.parametrize("purpose", ["membranes", "affinities", "2d"])
def test_greys_are_those_of_the_image_for_all_volumes(purpose: str) -> None:
    config = written(purpose, "v.h5:raw", "v.h5:labels")
    with h5py.File("v.h5") as file:
        raw = file["raw"][:].astype(np.float64)
    assert isinstance(config.data.normalize, FixedNormalize)
    assert config.data.normalize.mean == pytest.approx((raw.mean(),), rel=1e-5)
    assert config.data.normalize.deviation == pytest.approx((raw.std(),), rel=1e-5)
    # Values of other types have a scale by file, and classes are not told by their grey alone.
    assert written(purpose, "v.h5:values", "v.h5:labels").data.normalize == PLAIN
    assert written("semantic", "v.h5:raw", "v.h5:classes").data.normalize == PLAIN


def test_greys_of_each_channel_and_of_none(tmp_path: Path) -> None:
    two = Seen(channels=2, greys=((120.5, 30.0), (90.0, 12.25)))
    (tmp_path / "c.yaml").write_text(RECIPES["membranes"].text(two))
    found = load_config(tmp_path / "c.yaml").data.normalize
    assert isinstance(found, FixedNormalize)
    assert (found.mean, found.deviation) == ((120.5, 90.0), (30.0, 12.25))
    (tmp_path / "c.yaml").write_text(
        RECIPES["membranes"].text(replace(two, greys=((7, 0), (9, 1))))
    )
    assert load_config(tmp_path / "c.yaml").data.normalize == PLAIN


def test_gradients_are_clipped_where_no_norm_bounds_them(tmp_path: Path) -> None:
    clips = []
    for extent in ((50, 100, 200), (140, 250, 250)):
        (tmp_path / "c.yaml").write_text(RECIPES["membranes"].text(Seen(extent=extent)))
        config = load_config(tmp_path / "c.yaml")
        assert config.network.unet is not None
        clips.append((config.network.unet.norm is None, config.training.clip_norm))
    assert clips == [(False, None), (True, 1.0)]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--for", "semantic", "--data", "v.h5:raw", "--labels", "v.h5:values"), 1, "of float32"),
        (("--for", "membranes", "--data", "v.h5:raw", "--labels", "v.h5:raw2"), 1, "raw2"),
        (("--for", "classification", "--data", "v.h5:raw"), 1, "needs one for each image, 90"),
        (("--for", "membranes", "--data", "v.h5:thick"), 1, "must be equal"),
        (("--data", "v.h5:raw"), 2, "go with --for"),
        (("--for", "2d", "--labels", "v.h5"), 2, "goes with --data"),
        (("--for", "membrane",), 2, "'membrane'"),
    ],
)  # fmt: skip
def test_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, expected: str
) -> None:
    assert status_of("init", "c.yaml", *words) == code
    assert expected in capsys.readouterr().err
    assert not Path("c.yaml").exists()


def test_an_image_alone_is_not_its_own_labels(capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File("one.h5", "w") as file:
        file["raw"] = OBJECTS.astype(np.uint8)
    assert status_of("init", "c.yaml", "--for", "membranes", "--data", "one.h5") == 1
    assert "one.h5:raw is the image itself" in capsys.readouterr().err
    assert not Path("c.yaml").exists()


def test_a_number_for_each_image_is_no_volume_of_objects(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with h5py.File("each.h5", "w") as file:
        file["raw"] = OBJECTS.astype(np.uint8)
        file["labels"] = np.arange(len(OBJECTS), dtype=np.uint8)
    for purpose in ("membranes", "affinities", "2d", "semantic"):
        assert status_of("init", "--for", purpose, "--data", "each.h5") == 1
        assert "take --for classification" in capsys.readouterr().err
    assert status_of("init", "--for", "classification", "--data", "each.h5") == 0


def test_two_numbers_are_classes(capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File("two.h5", "w") as file:
        file["raw"] = OBJECTS.astype(np.uint8)
        file["labels"] = (OBJECTS > 5).astype(np.uint8)
    assert status_of("init", "--for", "membranes", "--data", "two.h5") == 1
    assert "take --for semantic" in capsys.readouterr().err
    assert status_of("init", "--for", "semantic", "--data", "two.h5") == 0
    assert "outputs: 2" in capsys.readouterr().out


def test_pictures_of_several_sizes_and_their_masks(tmp_path: Path) -> None:
    """A folder of pictures is written as its pattern, with the least size; a mask of 0 and 255 is no 256 classes."""
    rng = np.random.default_rng(0)
    for name in ("images", "masks"):
        Path(name).mkdir()
    for number, width in enumerate((70, 90, 64)):
        picture = rng.integers(0, 255, (80, width)).astype(np.uint8)
        Image.fromarray(picture).save(f"images/{number}.png")
        Image.fromarray(np.where(picture > 99, 255, 0).astype(np.uint8)).save(f"masks/{number}.png")
    config = written("semantic", "images/*.png", "masks/*.png")
    assert len(config.data.train) == 3
    assert config.data.target.kind == "mask"
    assert config.training.output_shape == (1, 80, 64)
    assert trained_network(config).outputs[0].channels == 1
    line = ("train", "configs/c.yaml", "--output", "elsewhere", "--set", "training.iterations=1")
    assert status_of(*line, "--set", "training.conv=direct", "--threads", 1) == 0
    assert Path("elsewhere/config.yaml").exists()


def test_a_cohort_of_scans(folder: Path) -> None:
    """Scans of several voxel sizes are resampled to the median; labels of all say which classes there are."""
    for number, (size, highest) in enumerate(((2.0, 1), (3.0, 3), (2.5, 2))):
        scan = np.random.default_rng(number).integers(0, 99, (30, 32, 24 - 4 * number), np.int16)
        labels = (np.arange(scan.size) % (highest + 1)).reshape(scan.shape)
        for name, array in ((f"i{number}_0000", scan), (f"l{number}", labels.astype(float))):
            nibabel.Nifti1Image(array, np.diag([1, 1.5, size, 1])).to_filename(f"{name}.nii.gz")
    found = written("semantic", "i*_0000.nii.gz", "l*.nii.gz")
    assert found.data.prepare is not None
    assert found.data.prepare.spacing == (2.5e6, 1.5e6, 1e6)
    assert found.network.unet.outputs == 4  # type: ignore[union-attr]
    # Of 16 voxels along z, of 2.5 mm, a patch of whole steps.
    assert found.training.output_shape[0] <= 16
    assert status_of("check", "configs/c.yaml", "--quiet") == 0
    nibabel.Nifti1Image(labels / 3, np.diag([1, 1.5, size, 1])).to_filename("l2.nii.gz")
    words = ("--data", "i*_0000.nii.gz", "--labels", "l*.nii.gz", "--overwrite")
    assert status_of("init", "configs/c.yaml", "--for", "semantic", *words) == 1


def test_volumes_of_which_some_say_no_voxel_size_are_not_resampled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A median with what nobody says is none; numbers that are masks one by one may be no classes together."""
    for number, high in enumerate((1, 1, 255)):
        with h5py.File(f"c{number}.h5", "w") as file:
            file["raw"] = np.zeros((20, 80, 80), np.uint8)
            file["labels"] = (OBJECTS[:20] % 2 * high).astype(np.uint8)
            if number:
                file["raw"].attrs["resolution"] = (40.0, 4, 4)
    assert written("semantic", "c[01].h5:raw", "c[01].h5:labels").data.prepare is None
    words = ("--data", "c*.h5:raw", "--labels", "c*.h5:labels", "--overwrite")
    assert status_of("init", "configs/c.yaml", "--for", "semantic", *words) == 1
    assert "others holds 1 and 255, and no number between" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("image", "labels"), [("set/*.h5:raw", "set/*.h5:truth"), ("set", None), ("set/*.h5", None)]
)
def test_sets_of_files_that_hold_several_datasets(image: str, labels: str | None) -> None:
    """As in configs, a pattern names the dataset of each of its files, and unnamed ones are the usual ones."""
    Path("set").mkdir()
    for number, depth in enumerate((20, 12)):
        with h5py.File(f"set/{number}.h5", "w") as file:
            file["raw"] = np.zeros((depth, 80, 80), np.uint8)
            file["truth" if labels else "labels"] = OBJECTS[:depth]
    config = written("membranes", image, labels)
    assert len(config.data.train) == 2
    assert config.training.output_shape[0] <= 12


def test_scribbles_may_leave_most_unlabelled() -> None:
    drawn = np.zeros((20, 80, 80), np.uint8)
    drawn[4, 10, 10:40], drawn[9, 20:60, 30] = 1, 2
    with h5py.File("v.h5", "a") as file:
        file["drawn"] = drawn
    written("semantic", "v.h5:thick", "v.h5:drawn")
    text = Path("configs/c.yaml").read_text()
    assert "99.95% class 0, 0.02% class 1, 0.03% class 2" in text
    assert (
        "# target: {kind: labels, first: 1}   # if 0 means not labelled, as in scribbles; with outputs: 2"
        in text
    )
    written("semantic", "v.h5:raw", "v.h5:classes")
    assert "first: 1" not in Path("configs/c.yaml").read_text()


def test_many_numbers_may_be_objects(capsys: pytest.CaptureFixture[str]) -> None:
    """So many are said, not refused: some atlases have a hundred classes."""
    with h5py.File("many.h5", "w") as file:
        file["raw"] = OBJECTS.astype(np.uint8)
        file["labels"] = (OBJECTS - 1 + 16 * (np.arange(80) % 2)).astype(np.uint8)
        file["few"] = OBJECTS
    said = "labels hold numbers up to 39; if these are objects, not classes, take --for membranes"
    written("semantic", "many.h5:raw", "many.h5:labels")
    assert f"\n# {said}\n" in Path("configs/c.yaml").read_text()
    assert said in capsys.readouterr().err
    written("semantic", "many.h5:raw", "many.h5:few")
    assert "if these are objects" not in Path("configs/c.yaml").read_text()
    assert not capsys.readouterr().err.startswith("labels hold")


@pytest.mark.parametrize("name", ["v.h5", "stack.tif", "configs", "scan.nii.gz"])
def test_no_config_is_written_over_an_image(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("v.h5").read_bytes()
    for more in ((), ("--overwrite",)):
        assert status_of("init", name, *more) == 1
        assert f"--data {name}" in capsys.readouterr().err
    assert Path("v.h5").read_bytes() == before


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0, 1, 255), r"holds 1 and 255, and no number between; .* {kind: labels, ignore: 255}"),
        ((1, 2, 200), r"holds 2 and 200, .* {kind: labels, ignore: 200}"),
    ],
)
def test_numbers_far_apart_are_no_classes(
    capsys: pytest.CaptureFixture[str], numbers: tuple[int, ...], expected: str
) -> None:
    with h5py.File("far.h5", "w") as file:
        file["raw"] = OBJECTS.astype(np.uint8)
        file["labels"] = np.array(numbers, np.uint8)[OBJECTS % len(numbers)]
    assert status_of("init", "c.yaml", "--for", "semantic", "--data", "far.h5") == 1
    assert re.search(expected, capsys.readouterr().err)
    assert not Path("c.yaml").exists()


@pytest.mark.parametrize("count", [199, 201])
def test_more_numbers_or_fewer_than_images(capsys: pytest.CaptureFixture[str], count: int) -> None:
    with h5py.File("v.h5", "a") as file:
        file["other"] = np.arange(count) % 10
    words = ("--data", "v.h5:digits", "--labels", "v.h5:other")
    assert status_of("init", "c.yaml", "--for", "classification", *words) == 1
    assert (
        f"v.h5:other holds {count} numbers, and v.h5:digits 200 images" in capsys.readouterr().err
    )
    assert not Path("c.yaml").exists()
