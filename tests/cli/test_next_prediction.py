"""After training, and for runs that are looked at, `predict` is named with the node and the inputs that it asks for."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import h5py
import numpy as np
import pytest
from called import status_of

UNET = """
network: {unet: {widths: [4, 4], down: 2, norm: batch, HEADS}}
data: {train: [{image: stack.h5:raw, labels: stack.h5:labels}], test: [], target: TARGET}
training: {iterations: 2, output_shape: 8, conv: direct, outputs: {lsds: {target: {kind: lsd, sigma: 2}}}}
run: {directory: RUN, threads: 1}
"""
CLASSES = """
network: {layers: [{conv: {channels: 3, size: 1}}]}
data: {train: [{image: stack.h5:raw, labels: stack.h5:classes}], test: [], target: WANTED}
training: {iterations: 2, output_shape: 8, conv: direct, loss: softmax}
run: {directory: RUN, threads: 1}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    with h5py.File("stack.h5", "w") as file:
        file["raw"] = rng.integers(0, 255, (12, 12, 14), np.uint8)
        file["labels"] = rng.integers(1, 5, (12, 12, 14), np.uint16)
        file["classes"] = rng.integers(0, 3, (12, 12, 14), np.uint8)


def following(capsys: pytest.CaptureFixture[str]) -> list[str]:
    (line,) = re.findall(r"^next: znnpy (.*)$", capsys.readouterr().err, re.MULTILINE)
    return shlex.split(line)


@pytest.mark.parametrize(
    ("heads", "target", "node"),
    [
        ("outputs: 1, heads: {lsds: 10}", "boundary", "output"),
        ("outputs: 10, heads: {lsds: 10, borders: 1}", "boundary", "borders"),
    ],
)
def test_one_of_several_outputs_is_named(
    heads: str, target: str, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = UNET.replace("HEADS", heads).replace("TARGET", target)
    if node != "output":
        text = text.replace("outputs: {", "outputs: {output: {target: {kind: lsd, sigma: 2}}, ")
    Path("config.yaml").write_text(text)
    assert status_of("train", "config.yaml") == 0
    words = following(capsys)
    assert words[words.index("--node") + 1] == node
    assert status_of(*[{"IMAGE": "stack.h5:raw"}.get(it, it) for it in words]) == 0
    assert following(capsys)[0] == "segment"
    assert status_of("view", "RUN") == 0
    assert following(capsys)[-4:] == ["--node", node, "--output", "prediction.h5"]


@pytest.mark.parametrize(("target", "first"), [("labels", 0), ("{kind: labels, first: 1}", 1)])
def test_classes_are_segmented_as_classes(
    target: str, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whose numbers the file keeps, where its format can."""
    Path("config.yaml").write_text(CLASSES.replace("WANTED", target))
    with h5py.File("stack.h5", "r+") as file:
        file["classes"][...] += first
    assert status_of("train", "config.yaml") == 0
    assert status_of("predict", "RUN", "--input", "stack.h5:raw", "--output", "p.nrrd") == 0
    more = following_last(capsys)[4:]
    assert more == ["--method", "classes", *(["--first", "1"] if first else [])]
    assert status_of("predict", "RUN", "--input", "stack.h5:raw", "--output", "p.h5") == 0
    words = following_last(capsys)
    assert words[:2] == ["segment", "p.h5:prediction"]
    assert words[4:] == ["--method", "classes"]
    assert status_of(*words) == 0
    with h5py.File("p.h5") as file:
        wanted = np.asarray(file["prediction"]).argmax(axis=0) + first
    with h5py.File("objects.h5") as file:
        np.testing.assert_array_equal(file["volumes/labels/neuron_ids"], wanted)
    assert status_of(*words, "--first", "2", "--overwrite") == 0
    with h5py.File("objects.h5") as file:
        np.testing.assert_array_equal(file["volumes/labels/neuron_ids"], wanted - first + 2)
    capsys.readouterr()
    assert status_of("segment", "p.h5", "--output", "o.h5") == 1
    assert "of classes, --method classes" in capsys.readouterr().err
    assert status_of("segment", "p.h5", "--tune", "stack.h5:classes", "--method", "classes") == 1
    assert "nothing to tune" in capsys.readouterr().err
    assert status_of("segment", "p.h5", "--output", "o.h5", "--first", "1") == 2
    assert "--first is for --method classes" in capsys.readouterr().err
    line = ("evaluate", "RUN", "--volume", "stack.h5:raw", "--labels", "stack.h5:classes")
    assert status_of(*line) == 0
    shown = re.findall(r"Dice of class (\d)", capsys.readouterr().out)
    assert shown == [str(number + first) for number in range(3)]
    assert status_of(*line, "--threshold", "0.3", "--grow", "1") == 2
    assert "--threshold and --grow: RUN shows no" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("name", "more"),
    [("p.zarr", []), ("p.precomputed", ["--kind", "affinity"]), ("p.nrrd", ["--kind", "affinity"])],
)
def test_affinities_are_segmented_as_such_whatever_the_file_keeps(
    name: str, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = CLASSES.replace("WANTED", "affinity").replace("loss: softmax", "loss: bce")
    text = text.replace(
        "affinity", "{kind: affinity, offsets: [[-1, 0, 0], [0, -1, 0], [0, 0, -1]]}"
    )
    Path("config.yaml").write_text(text.replace("h5:classes", "h5:labels"))
    assert status_of("train", "config.yaml") == 0
    assert status_of("predict", "RUN", "--input", "stack.h5:raw", "--output", name) == 0
    words = following_last(capsys)
    assert words == ["segment", name, "--output", "objects.h5", *more]
    assert status_of(*words) == 0


def following_last(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = re.findall(r"^next: znnpy (.*)$", capsys.readouterr().err, re.MULTILINE)
    return shlex.split(lines[-1])
