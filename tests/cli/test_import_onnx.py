"""From an ONNX file to values, scores and further training, by the commands alone."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import onnx
import pytest
from called import status_of
from onnx.reference import ReferenceEvaluator
from onnx_files import NET, drawn, written

from znnpy.config import load_config

IMAGE = drawn(1, 6, 8, 12)
TRAIN = """\
network: {network}
data: {{train: [{{image: image.h5, labels: labels.h5}}], target: mask, normalize: none}}
training: {{output_shape: [6, 8, 12], iterations: 2, loss: square, start_from: run, freeze: [e]}}
run: {{directory: more}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    nodes, weights = NET
    # One channel in: what a stack has.
    written(
        tmp_path / "a.onnx",
        nodes,
        {**weights, "c.weight": drawn(4, 1, 3, 3, 3)},
        shape=(1, 1, 6, 8, 12),
    )
    with h5py.File("image.h5", "w") as file:
        file["raw"] = IMAGE[0]
    with h5py.File("labels.h5", "w") as file:
        file["labels"] = (drawn(3, 6, 8, 12, seed=1) > 0).astype("u1")
    return tmp_path


def predicted(path: str) -> np.ndarray:
    with h5py.File(path) as file:
        found: np.ndarray = file["prediction"][:]
    return found


def test_a_net_that_no_size_fits_is_refused_before_anything_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 12 voxels a stride of 3 leaves the last one unread, and the resize makes 12 again for the sum."""
    nodes = [
        ("Conv", "x c.weight", "c", {"pads": [1] * 6}),
        ("Conv", "c e.weight", "e", {"pads": [1] * 6, "strides": [1, 1, 3]}),
        ("Resize", "e - s", "u", {"mode": "nearest"}),
        ("Add", "u c", "y"),
    ]
    weights = {"c.weight": drawn(4, 1, 3, 3, 3), "e.weight": drawn(4, 4, 3, 3, 3)}
    weights["s"] = np.array([1, 1, 1, 1, 3], np.float32)
    written(folder / "b.onnx", nodes, weights, shape=(1, 1, 6, 8, 12))
    assert status_of("import", "b.onnx", "--output", "other") == 1
    said = capsys.readouterr().err
    assert "b.onnx: node 'c.out': edge 'e' needs" in said
    assert not Path("other").exists()


def test_import_and_predict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("import", "a.onnx", "--output", "run") == 0
    assert "normalisation of the input is not part of the file" in capsys.readouterr().err
    line = ("--input", "image.h5", "--threads", 1)
    assert status_of("predict", "run", *line, "--output", "values.h5") == 0
    wanted = ReferenceEvaluator("a.onnx").run(None, {"x": IMAGE[None]})[0]
    np.testing.assert_allclose(predicted("values.h5"), wanted[0], rtol=1e-4, atol=1e-5)
    # In one go.
    assert status_of("predict", "a.onnx", *line, "--output", "once.h5") == 0
    assert np.array_equal(predicted("once.h5"), predicted("values.h5"))
    assert status_of("import", "a.onnx", "--output", "run") != 0  # it is there already
    assert "run holds a run already" in capsys.readouterr().err


def test_what_a_file_learned_is_said_by_the_user(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("import", "a.onnx", "--output", "run") == 0
    assert "data.target is unknown" in capsys.readouterr().err
    score = ("evaluate", "run", "--volume", "image.h5", "--labels", "labels.h5", "--threads", 1)
    assert status_of(*score) == 1
    told = capsys.readouterr().err
    number = (folder / "run" / "config.yaml").read_text().splitlines().index("  target:") + 1
    assert f"config.yaml:{number}: data.target: is unknown" in told
    assert "--set data.target=boundary" in told
    assert status_of(*score, "--set", "data.target=mask") == 0
    said = ("--set", "data.target={kind: image, scale: 2}")
    assert status_of("import", "a.onnx", "--output", "said", *said) == 0
    assert "unknown" not in capsys.readouterr().err
    assert load_config(folder / "said" / "config.yaml").data.target.model_dump()["scale"] == 2
    wrong = ("--set", "data.target=mitochondria")
    assert status_of("import", "a.onnx", "--output", "wrong", *wrong) == 1
    assert "--set data.target=mitochondria" in capsys.readouterr().err
    elsewhere = ("--set", "run.directory=elsewhere")
    assert status_of("import", "a.onnx", "--output", "wrong", *elsewhere) == 1
    assert "run.directory: the run is written to wrong; leave it out" in capsys.readouterr().err
    assert not (folder / "wrong").exists()


def test_train_it_further(folder: Path) -> None:
    assert status_of("import", "a.onnx", "--output", "run") == 0
    text = (folder / "run" / "config.yaml").read_text()
    network = text[: text.index("\ndata:")].removeprefix("network:")
    (folder / "more.yaml").write_text(TRAIN.format(network=network))
    assert status_of("train", "more.yaml", "--threads", 1) == 0
    saved = np.load(max((folder / "more" / "checkpoints").glob("*.npz")))
    assert np.array_equal(saved["parameters/e"], NET[1]["e.weight"])
    assert not np.array_equal(saved["parameters/d"], NET[1]["d.weight"])


def test_a_file_that_is_refused_leaves_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = onnx.load("a.onnx")
    made.graph.node[2].op_type = "Selu"
    onnx.save(made, "b.onnx")
    before = sorted(folder.iterdir())
    line = ("predict", "b.onnx", "--input", "image.h5", "--output", "values.h5")
    for words in (("import", "b.onnx", "--output", "run"), line):
        assert status_of(*words) != 0
        assert "b.onnx: Selu /a/r/Relu: is not supported" in capsys.readouterr().err
        assert sorted(folder.iterdir()) == before
