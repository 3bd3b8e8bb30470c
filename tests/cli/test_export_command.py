"""`znnpy export`: the files, their notes, checkpoints by number, and what is told in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from called import status_of
from nnunet_model import folder_of
from nnunet_plans import Recipe

from znnpy.weights.torch_file import read_torch


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder_of(Recipe(patch=(8, 16, 16), widths=(4, 6)), tmp_path / "model")
    assert status_of("import", "model", "--output", "liver") == 0
    return tmp_path / "liver"


def test_a_module_and_its_weights(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert status_of("export", "liver", "--format", "torch") == 0
    told = capsys.readouterr()
    assert told.out.split() == ["liver.py", "liver.pth"]
    assert "znnpy: note: the input is to be prepared" in told.err
    text = Path("liver.py").read_text()
    assert "Network of the run 'liver' after 0 updates" in text
    assert "nn.Softmax(dim=1)" in text
    weights = read_torch(Path("liver.pth"))
    assert weights["down0_conv1.weight"].array().dtype == np.float32
    assert status_of("export", "liver", "--format", "torch", "--logits", "--output", "b.py") == 0
    assert "Softmax" not in Path("b.py").read_text()


def test_help_names_extras(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    assert status_of("export", "--help") == 0
    assert "needs the extra znnpy[onnx]" in " ".join(capsys.readouterr().out.split())


def test_weights_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert status_of("export", "liver", "--format", "state-dict", "--output", "a.pth") == 0
    told = capsys.readouterr()
    assert told.out.split() == ["a.pth"]
    assert "names of weights are those of the class PlainConvUNet" in told.err
    assert "prepared" not in told.err
    assert "encoder.stages.0.0.convs.0.conv.weight" in read_torch(Path("a.pth"))
    for name in ("state-dict", "safetensors"):
        assert status_of("export", "liver", "--format", name, "--logits") == 2
        assert "which has weights alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "format_"),
    [("a.py", "torch"), ("a.PTH", "state-dict"), ("a.pt", "state-dict"), ("a.safetensors", None)],
)
def test_a_suffix_stands_for_its_format(run: Path, name: str, format_: str | None) -> None:
    assert status_of("export", "liver", "--output", name) == 0
    other = Path("b").with_suffix(Path(name).suffix)
    assert (
        status_of("export", "liver", "--format", format_ or "safetensors", "--output", other) == 0
    )
    if name != "a.py":  # which names its weights
        assert Path(name).read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        (("liver", "--format", "tensorrt"), 2, "'tensorrt' is not one of"),
        (("model", "--format", "torch"), 1, "model is not a run directory"),
        (("liver", "--format", "torch", "--checkpoint", "7"), 1, "no checkpoint of iteration 7"),
        (("liver", "--format", "torch", "--checkpoint", "best"), 1, "liver"),
        (("liver", "--format", "torch", "--output", "s3://a/b.py"), 2, "s3"),
        (("liver", "--format", "torch", "--output", "net.pt"), 1, "ends in .py"),
        (("liver",), 2, "--format or --output is needed, such as --output net.onnx"),
        (
            ("liver", "--output", "net.tflite"),
            1,
            ".py (torch), .onnx (onnx), .pth or .pt (state-dict)",
        ),
        (("liver", "--output", "net"), 1, ".zip (bioimageio); or say --format"),
        (("liver", "--output", "net.pt", "--logits"), 2, "not for state-dict"),
    ],
)
def test_what_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str], line: tuple[str, ...], status: int, words: str
) -> None:
    capsys.readouterr()
    before = sorted(run.parent.iterdir())
    assert status_of("export", *line) == status
    assert words in " ".join(capsys.readouterr().err.replace("│", "").split())
    assert sorted(run.parent.iterdir()) == before


def test_a_run_without_weights(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    assert status_of("export", "liver", "--format", "torch") == 1
    assert "liver has no checkpoint yet" in capsys.readouterr().err
    assert not Path("liver.py").exists()
