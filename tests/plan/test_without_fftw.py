"""Only `conv: fft` needs pyfftw: nothing else loads it, and without it says so only where it was asked for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import znnpy
from znnpy.config.loading import config_from
from znnpy.errors import PlanError
from znnpy.network import trained_network
from znnpy.plan import ConvShape, Method, candidates, fftw
from znnpy.plan.choose import _candidates, left_out

CONFIG = """
network:
  layers:
    - conv: {channels: 16, size: 3, function: relu}
    - conv: {channels: 16, size: 3, function: relu}
    - conv: {channels: 1, size: 1}
data: {train: [{image: data.h5:raw, labels: data.h5:labels}]}
training: {iterations: 2, output_shape: 6}
run: {threads: 2}
"""
# Runs commands one after the other in one process, and tells what each ended with.
COMMANDS = """
import contextlib, io, json, sys
from pathlib import Path
from znnpy.cli import main

ends = []
for words in json.loads(sys.argv[1]):
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(words)
        except SystemExit as end:
            code = end.code or 0
    ends.append([code, said.getvalue()])
loaded = "fftw" in Path("/proc/self/maps").read_text()
print(json.dumps([ends, "pyfftw" in sys.modules, loaded]))
"""
TOLD = 'FFTW is missing, which comes with pyfftw: pip install "znnpy[fft]"'
SHAPE = ConvShape(16, 16, (5, 5, 5), (1, 1, 1), (1, 1, 1), (24, 24, 24), (20, 20, 20), 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config, its data, and plans by Winograd and by FFT; the current folder."""
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["raw"] = rng.integers(0, 99, (12, 14, 15)).astype(np.uint8)
        file["labels"] = rng.integers(0, 7, (12, 14, 15)).astype(np.uint32)
    (tmp_path / "config.yaml").write_text(CONFIG)
    direct = dict.fromkeys(("forward", "gradient", "weight"), "direct")
    for name in ("winograd", "fft"):
        plan = {"conv1": direct, "conv2": dict.fromkeys(direct, name), "conv3": direct}
        (tmp_path / f"{name}.json").write_text(json.dumps(plan))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started find a pyfftw that cannot be imported."""
    (tmp_path / "shadow" / "pyfftw").mkdir(parents=True)
    (tmp_path / "shadow" / "pyfftw" / "__init__.py").write_text("raise ImportError('broken')")
    path = [str(tmp_path / "shadow"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process finds no pyfftw, and remembers nothing of the time before."""
    monkeypatch.setattr(fftw, "_extension", lambda: None)
    remembered = (fftw.missing, _candidates)
    for found in remembered:
        found.cache_clear()
    yield
    for found in remembered:
        found.cache_clear()


def commands(*words: list[str]) -> tuple[list[tuple[int, str]], bool, bool]:
    """Exit status and output of each command, whether pyfftw was imported, whether FFTW is in memory."""
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(words)],
        capture_output=True,
        text=True,
        check=True,
    )
    ends, imported, loaded = json.loads(done.stdout.splitlines()[-1])
    return [(code, said) for code, said in ends], imported, loaded


def life(name: str, choice: str) -> list[list[str]]:
    """Check, train and predict with some algorithms."""
    told = ["--set", choice, "--set", f"run.directory={name}"]
    output = ["--output", f"{name}.h5", "--patch", "6"]
    return [
        ["check", "config.yaml", *told],
        ["train", "config.yaml", *told],
        ["predict", name, "--input", "data.h5:raw", *output],
    ]


@pytest.mark.slow
def test_nothing_but_fft_loads_it(folder: Path) -> None:
    """So whether it could be loaded makes no difference."""
    ends, imported, loaded = commands(
        *life("direct", "training.conv=direct"),
        *life("spectral", "training.conv=spectral"),
        *life("winograd", "training.plan=winograd.json"),
        ["check", "config.yaml"],
    )
    assert [code for code, _ in ends] == [0] * 10, ends
    assert (imported, loaded) == (False, False)
    for name in ("direct", "spectral", "winograd"):
        assert name in (folder / name / "plan.json").read_text()
    assert "does not try" not in ends[-1][1]


@pytest.mark.slow
@pytest.mark.usefixtures("hidden")
def test_who_asks_for_it_is_told(folder: Path) -> None:
    fft = ["--set", "training.conv=fft"]
    pinned = ["--set", "training.plan=fft.json"]
    ends, _, _ = commands(
        ["check", "config.yaml", *fft],
        ["train", "config.yaml", *fft],
        ["train", "config.yaml", *pinned],
    )
    assert all(code for code, _ in ends)
    by_choice, trained, by_plan = (" ".join(said.split()) for _, said in ends)
    assert f"conv: fft: {TOLD}" in by_choice
    assert f"conv: fft: {TOLD}" in trained
    assert f"'conv2': {TOLD}" in by_plan
    assert not any("Traceback" in said for _, said in ends)
    assert not (folder / "runs").exists()


@pytest.mark.usefixtures("missing")
@pytest.mark.parametrize(("taps", "conv"), [(5, "auto"), (21, "auto"), (21, "direct")])
def test_auto_says_what_it_misses_where_it_matters(taps: int, conv: str) -> None:
    conv_layer = {"conv": {"channels": 1, "size": [1, 1, taps]}}
    config = config_from(
        {"network": {"layers": [conv_layer]}, "training": {"output_shape": 4, "conv": conv}}
    )
    said = left_out(config.training, trained_network(config))
    matters = taps == 21 and conv == "auto"
    told = f"conv: auto does not try fft, which may be the fastest for {taps} taps: {TOLD}"
    assert said == ([told] if matters else [])


@pytest.mark.usefixtures("missing")
def test_auto_goes_without() -> None:
    assert Method("fft") not in candidates(SHAPE)


def test_auto_tries_it_where_it_is() -> None:
    long = replace(SHAPE, size=(1, 25, 25), source=(1, 64, 64), target=(1, 40, 40))
    assert Method("fft") in candidates(long)


def test_a_library_that_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.so").write_text("no library")
    monkeypatch.setattr(fftw, "_extension", lambda: str(tmp_path / "broken.so"))
    monkeypatch.setattr(fftw, "_fftw", fftw._fftw.__wrapped__)
    with pytest.raises(PlanError, match=r"broken.so.*--force-reinstall pyfftw"):
        fftw._fftw()


def test_one_module_knows_pyfftw() -> None:
    root = Path(znnpy.__file__).parent
    named = [path for path in root.rglob("*.py") if "pyfftw" in path.read_text().lower()]
    kept = [
        root / "plan" / "fftw.py",
        root / "train" / "environment.py",
    ]  # its version, beside a run
    assert sorted(named) == kept
    assert not any(re.search(r"^\s*(import|from) pyfftw", path.read_text(), re.M) for path in named)
