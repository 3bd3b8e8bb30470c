"""Malformed configs, volumes and calls through the command line: one clear error, nothing left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from called import status_of

from znnpy.train import checkpoint as checkpoints
from znnpy.train.run_directory import CONFIG, LOCK

GOOD = """\
network:
  layers:
    - conv: {channels: 2, size: 3, function: relu}
    - conv: {channels: 1, size: 1}
data:
  train:
    - {image: data.h5:raw, labels: data.h5:labels}
  border: valid
training:
  iterations: 2
  batch: 1
  output_shape: 4
  conv: direct
run:
  directory: run
  threads: 1
"""
CUBE = (12, 12, 12)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A good config with its volume, as the current directory."""
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["raw"] = rng.integers(0, 255, CUBE).astype(np.uint8)
        file["labels"] = rng.integers(0, 3, CUBE).astype(np.uint32)
    (tmp_path / "config.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


Result = tuple[int, str, str]
Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *words: object) -> Result:
    """Exit status, stdout and stderr of a command line."""
    capsys.readouterr()
    return status_of(*words), *capsys.readouterr()


def files(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder; None for folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def refused(
    capsys: Capture, folder: Path, words: list[object], *expected: str, code: int = 1
) -> str:
    """The command fails with one error that holds all `expected`, and changes no file."""
    before = files(folder)
    status, out, errors = run(capsys, *words)
    assert (status, out) == (code, ""), errors
    assert "Traceback" not in errors
    if code == 1:
        assert errors.startswith("znnpy: ")
        assert errors.count("znnpy: ") == 1
        assert errors.count("\n") == 1
    for word in expected:
        assert word in errors
    assert files(folder) == before
    return errors


def edit(old: str, new: str) -> None:
    """Replace a part of the good config."""
    assert old in GOOD
    Path("config.yaml").write_text(GOOD.replace(old, new, 1))


def bomb() -> str:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join(lines)


SPARSE_STRIDE = "conv: {channels: 2, size: 3}\n    - max_filter: 2\n    - conv: {channels: 2, size: 3, stride: 2}"
CONVERGING = """\
network:
  nodes:
    in: {kind: input, channels: 1}
    out: {kind: transfer, channels: 1}
  edges:
    narrow: {kind: conv, from: in, to: out, size: 1}
    wide: {kind: conv, from: in, to: out, size: 3}
"""
LAYERS = GOOD[: GOOD.index("data:")]


def unet(keys: str) -> str:
    """The section of a U-Net."""
    return f"network:\n  unet: {{{keys}}}\n"


FINER = (
    "network:\n  layers:\n    - upsample: 2\n    - conv: {channels: 1, size: 1}\n"  # than its input
)

# (what, replace, by, words that the error must hold)
CONFIGS = [
    ("wrong key", "batch: 1", "bacth: 1", ["config.yaml:11", "training.bacth", "did you mean 'batch'"]),
    ("wrong section", "training:", "trainig:", ["config.yaml:9", "trainig", "'training'"]),
    ("wrong type", "batch: 1", "batch: two", ["config.yaml:11", "training.batch", "whole number"]),
    ("missing key", "  output_shape: 4\n", "", ["config.yaml:9", "training.output_shape", "missing"]),
    ("missing section", LAYERS, "", ["config.yaml", "network", "missing"]),
    ("duplicate key", "batch: 1", "batch: 1\n  batch: 2", ["config.yaml:12", "training.batch", "line 11"]),
    ("YAML tag", "batch: 1", "batch: !!python/object:os.system x", ["config.yaml:11", "tags"]),
    ("NaN number", "batch: 1", "learning_rate: .nan", ["config.yaml:11", "learning_rate", "finite"]),
    ("no number", "batch: 1", "learning_rate: fast", ["learning_rate", "a number", "'fast'"]),
    ("output larger than the volume", "output_shape: 4", "output_shape: 40",
     ["data.h5:raw", "(12, 12, 12)", "training.output_shape"]),
    ("stride after sparsity", "conv: {channels: 2, size: 3, function: relu}", SPARSE_STRIDE,
     ["stride 2", "sparsity 2", "max_pool"]),
    ("converging paths that differ", LAYERS, CONVERGING, ["'in'", "'narrow'", "'wide'", "crop"]),
    ("a node that is none", LAYERS, CONVERGING.replace("from: in, to: out, size: 3", "from: inn, to: out, size: 3"),
     ["config.yaml:7", "'inn'", "did you mean 'in'"]),
    ("softmax with one class", "  conv: direct", "  loss: softmax",
     ["config.yaml:13: training.loss", "softmax", "'output'", "each class"]),
    ("Dice of a linear output", "  conv: direct", "  loss: dice",
     ["config.yaml:13: training.loss", "'output'", "linear", "dice", "logistic or softmax"]),
    ("weights of other classes", "  conv: direct", "  loss: {kind: softmax, class_weights: [1, 2]}",
     ["config.yaml:13: training.loss", "softmax has 2 class_weights", "'output' has 1 channels"]),
    ("a background alone", "  conv: direct", "  loss: {kind: bce_dice, include_background: false}",
     ["config.yaml:13: training.loss", "bce_dice", "include_background", "'output' has 1 channels"]),
    ("MALIS of a boundary", "  conv: direct", "  loss: {kind: malis, offsets: [[0, 0, 1]]}",
     ["config.yaml:13: training.loss", "malis", "[[0, 0, 1]]", "is no affinity"]),
    ("MALIS of images that are fewer", "  conv: direct", "  loss: malis",
     ["config.yaml:13: training.loss", "malis has 3 offsets", "'output' has 1 channels"]),
    ("a loss that is none", "  conv: direct", "  loss: dise",
     ["config.yaml:13", "training.loss", "dise", "dice"]),
    ("a key of another loss", "  conv: direct", "  loss: {kind: dice, gamma: 2}",
     ["config.yaml:13", "training.loss", "gamma", "smooth"]),
    ("Dice without smoothing", "  conv: direct", "  loss: {kind: bce_dice, smooth: 0}",
     ["config.yaml:13", "training.loss", "smooth", "greater than 0"]),
    ("object numbers as probabilities", "border: valid", "target: labels",
     ["data.h5:labels", "values are from 0 to", "(z, y, x) = ", "kind: mask", "kind: image, scale: "]),
    ("a scale that keeps nothing", "border: valid", "target: {kind: image, scale: 0}",
     ["data.target.scale", "must not be 0"]),
    ("affinities with one image", "border: valid", "target: affinity",
     ["'output'", "1 channel", "'affinity'", "3"]),
    ("no volume to train on", "    - {image: data.h5:raw, labels: data.h5:labels}\n", "    []\n",
     ["data.train", "names no volume"]),
    ("no labels to train on", ", labels: data.h5:labels", "", ["data.h5:raw", "without labels", "'output'"]),
    ("two input channels for one", "layers:", "input: 2\n  layers:",
     ["data.h5:raw", "1 channel", "'input'", "2 channel"]),
    ("missing volume file", "image: data.h5:raw", "image: dat.h5:raw",
     ["dat.h5", "does not exist", "did you mean", "data.h5"]),
    ("missing folder of a volume", "image: data.h5:raw", "image: no/dat.h5:raw", ["no/dat.h5", "no folder"]),
    ("missing dataset", "data.h5:raw", "data.h5:rwa", ["data.h5", "rwa", "did you mean raw"]),
    ("missing ZNN file", LAYERS, "network: {znn: net.znn}\n", ["net.znn", "config.yaml:1"]),
    ("a patch that steps down do not divide", LAYERS, unet("widths: [2, 2, 2, 2]"),
     ["config.yaml:10: training.output_shape", "'up2.grow'", "nearest possible size is 8 x 8 x 8"]),
    ("a patch of one voxel to normalise", LAYERS, unet("widths: [2, 2], down: 4, norm: instance"),
     ["config.yaml:10: training.output_shape", "'down1.layer1'", "one voxel", "larger patch"]),
    ("a reflection beyond the image", LAYERS, LAYERS.replace("size: 3", "size: 9, padding: 4, border: reflect"),
     ["config.yaml:12: training.output_shape", "reflect padding is smaller than the image", "5 x 5 x 5"]),
    ("growth beyond the input", LAYERS, FINER, ["config.yaml:1: network", "1/2 x 1/2 x 1/2", "grow less"]),
    ("paths that differ, where", LAYERS, CONVERGING, ["config.yaml:1: network", "crop edge"]),
    ("a window that steps do not divide", LAYERS, unet("widths: [2, 2]") + "inference: {window: [4, 5, 4]}\n",
     ["config.yaml:3: inference.window", "4 x 5 x 4", "4 x 4 x 4 and 4 x 6 x 4"]),
    ("groups that do not divide", LAYERS, unet("widths: [8, 12], norm: group"),
     ["config.yaml:2: network.unet.norm", "8 groups", "the 12 channels of level 1 (widths)"]),
    ("one weight to standardise", "size: 3", "size: 1, weight_standardization: true",
     ["config.yaml:3", "'conv1'", "a single weight"]),
    ("memory limit", "threads: 1", "max_memory: 10kB", ["needs", "KiB", "max_memory"]),
]  # fmt: skip


@pytest.mark.quick(12)
@pytest.mark.parametrize(
    ("old", "new", "words"), [c[1:] for c in CONFIGS], ids=[c[0] for c in CONFIGS]
)
def test_configs(capsys: Capture, folder: Path, old: str, new: str, words: list[str]) -> None:
    edit(old, new)
    refused(capsys, folder, ["train", "config.yaml"], *words)


def test_the_good_config_trains(capsys: Capture, folder: Path) -> None:
    code, _, errors = run(capsys, "train", "config.yaml")
    assert code == 0, errors
    assert (folder / "run" / CONFIG).exists()
    assert "of memory, threads: " in errors


def test_alias_bomb(capsys: Capture, folder: Path) -> None:
    Path("config.yaml").write_text(bomb())
    refused(capsys, folder, ["check", "config.yaml"], "config.yaml", "more than 6000 values")


def test_every_wrong_key_is_told_at_once(capsys: Capture, folder: Path) -> None:
    Path("config.yaml").write_text(GOOD.replace("batch", "bacth").replace("threads", "treads"))
    code, out, errors = run(capsys, "train", "config.yaml")
    assert (code, out) == (1, "")
    assert [line.count("did you mean") for line in errors.splitlines()] == [1, 1]


def test_override_with_a_wrong_key(capsys: Capture, folder: Path) -> None:
    words: list[object] = ["check", "config.yaml", "--set", "training.bacth=2"]
    refused(capsys, folder, words, "--set training.bacth=2", "did you mean 'batch'")


def test_unknown_node_in_a_znn_file(capsys: Capture, folder: Path) -> None:
    edit(LAYERS, "network: {znn: net.znn}\n")
    Path("net.znn").write_text(_znn("OUTPT"))
    refused(capsys, folder, ["train", "config.yaml"], "net.znn:", "OUTPT", "did you mean 'OUTPUT'")


def _znn(target: str) -> str:
    return (
        "nodes INPUT\ntype input\nsize 1\n\n"
        "nodes OUTPUT\ntype transfer\nfunction linear\nsize 1\n\n"
        f"edges C1\ntype conv\nsize 3,3,3\nstride 1,1,1\ninput INPUT\noutput {target}\n"
    )


def volume(make: Callable[[h5py.File], object]) -> None:
    """Make data.h5 anew, with good labels."""
    with h5py.File("data.h5", "w") as file:
        file["labels"] = np.ones(CUBE, np.uint32)
        make(file)


def _other(file: h5py.File) -> None:
    with h5py.File("other.h5", "w") as other:
        other["raw"] = np.zeros(CUBE, np.uint8)
    file["real"] = np.zeros(CUBE, np.uint8)


def _nan(file: h5py.File) -> None:
    raw = np.zeros(CUBE, np.float32)
    raw[3, 4, 5] = np.nan
    file["raw"] = raw


def _external_link(file: h5py.File) -> None:
    _other(file)
    file["raw"] = h5py.ExternalLink("other.h5", "/raw")


def _soft_link(file: h5py.File) -> None:
    _other(file)
    file["raw"] = h5py.SoftLink("/real")


def _virtual(file: h5py.File) -> None:
    _other(file)
    layout = h5py.VirtualLayout(CUBE, np.uint8)
    layout[...] = h5py.VirtualSource("other.h5", "raw", CUBE)
    file.create_virtual_dataset("raw", layout)


def _external_storage(file: h5py.File) -> None:
    Path("bytes").write_bytes(bytes(12**3))
    file.create_dataset("raw", CUBE, np.uint8, external=[("bytes", 0, 12**3)])


def _huge(file: h5py.File) -> None:
    file.create_dataset("raw", (1 << 14,) * 3, np.uint8, chunks=(64,) * 3)[:64, :64, :64] = 1


def _words(file: h5py.File) -> None:
    file["raw"] = np.full(CUBE, b"words")


VOLUMES = {
    "2-D": (lambda file: file.create_dataset("raw", data=np.zeros((12, 12))), ["(1, 12, 12)", "must be equal"]),
    "NaN": (_nan, ["nan", "(3, 4, 5)", "finite"]),
    "empty": (lambda file: file.create_dataset("raw", (0, 12, 12), np.uint8), ["empty", "(1, 0, 12, 12)"]),
    "text": (_words, ["expected integers or floats"]),
    "group": (lambda file: file.create_group("raw"), ["group", "labels (3-D)"]),
    "external link": (_external_link, ["an external link", "refused", "allow_external_links"]),
    "soft link": (_soft_link, ["a soft link", "allow_external_links"]),
    "virtual dataset": (_virtual, ["virtual dataset", "allow_external_links"]),
    "external storage": (_external_storage, ["bytes", "another file", "allow_external_links"]),
    "4 TiB": (_huge, ["4.0 TiB", "at most"]),
    "never written": (lambda file: file.create_dataset("raw", CUBE, np.uint8), ["no data was ever written"]),
}  # fmt: skip


@pytest.mark.quick(5)
@pytest.mark.parametrize(("make", "words"), VOLUMES.values(), ids=VOLUMES.keys())
def test_volumes(
    capsys: Capture, folder: Path, make: Callable[[h5py.File], object], words: list[str]
) -> None:
    volume(make)
    refused(capsys, folder, ["train", "config.yaml"], "data.h5:raw", *words)


def test_truncated_hdf5(capsys: Capture, folder: Path) -> None:
    whole = Path("data.h5").read_bytes()
    Path("data.h5").write_bytes(whole[: len(whole) // 2])
    refused(capsys, folder, ["train", "config.yaml"], "data.h5", "truncated")


def test_damaged_chunk(capsys: Capture, folder: Path) -> None:
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 255, CUBE).astype(np.uint8)
    volume(lambda file: file.create_dataset("raw", data=raw, chunks=CUBE, compression="gzip"))
    with h5py.File("data.h5") as file:
        place = file["raw"].id.get_chunk_info(0).byte_offset
    data = bytearray(Path("data.h5").read_bytes())
    data[place : place + 64] = bytes(64)
    Path("data.h5").write_bytes(data)
    refused(capsys, folder, ["train", "config.yaml"], "data.h5:raw", "damaged")


def test_text_file_named_h5(capsys: Capture, folder: Path) -> None:
    Path("data.h5").write_text("these are no voxels")
    refused(capsys, folder, ["train", "config.yaml"], "data.h5", "is no HDF5, TIFF, ")


@pytest.mark.parametrize("what", ["labels", "mask"])
def test_another_shape_than_the_image(capsys: Capture, folder: Path, what: str) -> None:
    with h5py.File("data.h5", "a") as file:
        file["small"] = np.ones((12, 12, 11), np.uint32)
    good = "labels: data.h5:labels"
    edit(good, "labels: data.h5:small" if what == "labels" else f"{good}, mask: data.h5:small")
    errors = refused(capsys, folder, ["train", "config.yaml"], "data.h5:small", "(12, 12, 11)")
    assert "(12, 12, 12)" in errors


def test_labels_that_are_no_integers(capsys: Capture, folder: Path) -> None:
    volume(lambda file: file.create_dataset("raw", data=np.ones(CUBE, np.float32)))
    edit("labels: data.h5:labels", "labels: data.h5:raw")
    refused(capsys, folder, ["train", "config.yaml"], "data.h5:raw", "float32", "integer labels")


def test_class_numbers_beyond_the_classes(capsys: Capture, folder: Path) -> None:
    edit("  conv: direct", "  conv: direct\n  loss: softmax")
    text = Path("config.yaml").read_text().replace("channels: 1, size: 1", "channels: 2, size: 1")
    Path("config.yaml").write_text(text.replace("border: valid", "target: labels"))
    refused(capsys, folder, ["train", "config.yaml"], "data.h5:labels", "0 to 2", "from 0 to 1")


@pytest.fixture
def trained(capsys: Capture, folder: Path) -> Path:
    """The folder with a finished run."""
    code, _, errors = run(capsys, "train", "config.yaml")
    assert code == 0, errors
    return folder


def test_run_of_another_config(capsys: Capture, trained: Path) -> None:
    edit("size: 3", "size: 5")
    refused(capsys, trained, ["train", "config.yaml"], "run", "network.layers", "--overwrite")


def test_bad_data_never_costs_the_run_that_is_overwritten(capsys: Capture, trained: Path) -> None:
    edit("data.h5:raw", "data.h5:rwa")
    refused(capsys, trained, ["train", "config.yaml", "--overwrite"], "did you mean raw")
    edit("threads: 1", "max_memory: 10kB")
    refused(capsys, trained, ["train", "config.yaml", "--overwrite"], "needs")


def test_directory_of_something_else(capsys: Capture, folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "thesis.txt").write_text("years of work")
    refused(capsys, folder, ["train", "config.yaml", "--overwrite"], "thesis.txt", "new directory")


def test_run_directory_that_is_a_file(capsys: Capture, folder: Path) -> None:
    (folder / "run").write_text("")
    refused(capsys, folder, ["train", "config.yaml"], "run", "File exists")


def test_damaged_checkpoints(capsys: Capture, trained: Path) -> None:
    for path in (trained / "run" / checkpoints.DIRECTORY).iterdir():
        path.write_bytes(b"x")
    status, _, errors = run(capsys, "evaluate", "run")
    assert (status, "Traceback" in errors) == (1, False)
    assert "no checkpoint" in errors.splitlines()[-1]


def predict(*words: object, input_: str = "data.h5:raw", output: str = "out.h5") -> list[object]:
    return ["predict", "run", "--input", input_, "--output", output, *words]


@pytest.mark.slow
def test_predict_refusals(capsys: Capture, trained: Path) -> None:
    def no(*expected: str, **named: str) -> None:
        refused(capsys, trained, predict(**named), *expected)

    no("data.h5", "rwa", "did you mean raw", input_="data.h5:rwa")
    no("data.hd", "does not exist", "data.h5", input_="data.hd")
    no("no/out.h5", "no folder", output="no/out.h5")
    no("is a folder", output=".", input_="data.hd")
    no("no/out.h5", "no folder", output="no/out.h5", input_="data.hd")  # before the input is read
    no("data.h5", "exists already", "--overwrite", output="data.h5")
    no("out.XYZ", "HDF5", "out.h5", "out.zarr", output="out.XYZ")
    refused(capsys, trained, ["predict", "ran", *predict()[2:]], "ran", "not a run directory")
    refused(capsys, trained, predict("--border", "mirrored"), "--border", "mirror", code=2)
    refused(capsys, trained, predict("--max-memory", "10kB"), "at least", "KiB")
    refused(capsys, trained, predict("--max-memory", "lots"), "--max-memory", "8GiB", code=2)
    for wrong in ("1:2,3:4", "0:4,5:5,0:3", "0:4,a:5,0:3", "4:0,0:5,0:3"):
        assert "--roi must be" in refused(capsys, trained, predict("--roi", wrong), code=2)
    refused(capsys, trained, predict("--dtype", "float16"), "--dtype", "uint8", code=2)
    refused(capsys, trained, predict("--augment", "turns"), "flips", code=2)
    refused(capsys, trained, predict("--mask", "data.h5:msk"), "data.h5", "msk")
    refused(
        capsys, trained, predict("--roi", "50:60,0:5,0:5"), "--roi", "(60, 5, 5)", "data.h5:raw"
    )


def test_predict_removes_no_other_data(capsys: Capture, trained: Path) -> None:
    with h5py.File("full.h5", "w") as file:
        file["raw"] = np.ones((2, 12, 12), np.uint8)
    words = predict("--overwrite", output="full.h5")
    refused(capsys, trained, words, "full.h5", "holds raw too", "--overwrite")


def test_predict_on_less_than_the_field_of_view(capsys: Capture, trained: Path) -> None:
    with h5py.File("small.h5", "w") as file:
        file["raw"] = np.ones((2, 12, 12), np.uint8)
    words = predict(input_="small.h5")
    refused(capsys, trained, words, "small.h5:raw", "(2, 12, 12)", "(3, 3, 3)", "mirror")


def test_predict_on_nan_far_from_the_first_block(capsys: Capture, trained: Path) -> None:
    raw = np.zeros((8, 8, 40), np.float32)
    raw[4, 4, 38] = np.inf
    with h5py.File("late.h5", "w") as file:
        file["raw"] = raw
    for extra in ([], ["--set", "data.in_memory=false", "--block", "4,4,4"]):
        refused(
            capsys, trained, predict(*extra, input_="late.h5"), "late.h5:raw", "inf", "(4, 4, 38)"
        )


def test_evaluate_refusals(capsys: Capture, trained: Path) -> None:
    words: list[object] = ["evaluate", "run"]
    refused(capsys, trained, words, "--volume", "--labels")
    pair: list[object] = ["--volume", "data.h5:raw", "--labels", "data.h5:lables"]
    refused(capsys, trained, words + pair, "lables", "did you mean labels")


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "words",
    [
        ["predict", "run", "--input", "data.h5"],
        predict("--block", "4,4"),
        predict("--node", "outptu"),
        ["evaluate", "run", "--volume", "data.h5:raw"],
        ["profile", "config.yaml", "--threads", "two"],
        ["tarin", "config.yaml"],
    ],
)
def test_wrong_usage(capsys: Capture, trained: Path, words: list[object]) -> None:
    refused(capsys, trained, words, "Usage", code=2)


def test_messages_without_ranks_are_refused(capsys: Capture, folder: Path) -> None:
    for option in ("--latency", "--bandwidth"):
        words: list[object] = ["profile", "config.yaml", option, 5]
        refused(capsys, folder, words, option, "--ranks", code=2)


@pytest.mark.slow
def test_kernel_cache_that_cannot_be_used(folder: Path) -> None:
    before = files(folder)
    environment = {**os.environ, "ZNNPY_CACHE": str(folder / "data.h5" / "cache")}
    words = [sys.executable, "-c", "from znnpy.cli import main; main()", "train", "config.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("znnpy: kernel cache ")
    assert "ZNNPY_CACHE" in done.stderr
    assert done.stderr.count("\n") == 1
    assert files(folder) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_read_only_folder(capsys: Capture, folder: Path) -> None:
    folder.chmod(0o500)
    try:
        refused(capsys, folder, ["train", "config.yaml"], "run", "Permission denied")
    finally:
        folder.chmod(0o700)


def test_read_only_run_directory(
    capsys: Capture, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an ordinary user sees it; root, who may write anywhere, is told so by the system."""
    lock, real = str((trained / "run" / LOCK).resolve()), Path.open

    def denied(path: Path, mode: str = "r", *rest: object, **named: object) -> object:
        if str(path.resolve()) == lock and "a" in mode:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, mode, *rest, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", denied)
    refused(capsys, trained, ["train", "config.yaml"], "run", "Permission denied", "run.directory")


@pytest.mark.slow
def test_the_installed_command_ends_the_same_way(folder: Path) -> None:
    edit("data.h5:raw", "data.h5:rwa")
    before = files(folder)
    words = [sys.executable, "-c", "from znnpy.cli import main; main()", "train", "config.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("znnpy: ")
    assert done.stderr.count("\n") == 1
    assert files(folder) == before
