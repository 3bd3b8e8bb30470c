"""One entry for each kind: what docs/how-to/plug-ins.md adds, and it alone, works in all commands as what znnpy has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocks import ROOT, blocks
from called import status_of
from znnpy_kernels.machine import declarations

import znnpy.cli.app
from znnpy import plugins
from znnpy.config import json_schema, load_config
from znnpy.data.formats import FORMATS
from znnpy.data.opening import open_volume
from znnpy.data.writing.output_format import OUTPUTS
from znnpy.errors import ConfigError, ZnnpyError
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.edges import EDGE_KINDS
from znnpy.learning.losses import LOSSES
from znnpy.learning.optimizers import OPTIMIZERS
from znnpy.metrics.metric import METRICS
from znnpy.registry import Registry
from znnpy.segment.job import Request, segment
from znnpy.segment.method import METHODS

PAGE = ROOT / "docs" / "how-to" / "plug-ins.md"
MODULE = "plug_in_of_the_page"
REGISTRIES: dict[str, Registry[Any]] = {
    "huber": LOSSES,
    "lion": OPTIMIZERS,
    "bounded": FUNCTIONS,
    "trim": EDGE_KINDS,
    "bricks": FORMATS,
    "dice_score": METRICS,
    "planes": METHODS,
}
CONFIG = """\
network:
  layers:
    - conv: {channels: 9, size: 3, function: bounded}
    - trim: [0, 1, 2]
    - conv: {channels: 1, size: [1, 2, 2]}
data:
  train: [{image: raw.bricks, labels: labels.bricks}]
  test: [{image: raw.bricks, labels: labels.bricks}]
  target: mask
training:
  iterations: 4
  output_shape: [3, 4, 5]
  loss: {kind: huber, delta: 0.3}
  optimizer: {kind: lion, beta1: 0.8}
  learning_rate: 0.003
  conv: direct
run: {directory: run, threads: 2, log_every: 1}
"""


def text() -> str:
    """The plug-in: all Python of the page."""
    return "\n\n".join(block.text for block in blocks(PAGE) if block.language == "python")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the plug-in, two volumes in its format, and a config that uses all of it."""
    (tmp_path / f"{MODULE}.py").write_text(text())
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (9, 14, 15), dtype=np.uint8)
    for name, voxels in (
        ("raw", 40 * labels + rng.integers(0, 40, labels.shape, np.uint8)),
        ("labels", labels),
    ):
        bricks(tmp_path / f"{name}.bricks", voxels)
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bricks(path: Path, voxels: Any) -> None:
    path.write_bytes(b"BRICKS01" + np.array(voxels.shape, "<i4").tobytes() + voxels.tobytes())


@pytest.fixture
def named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same, with the plug-in named to the command; afterwards the process is as if it had not been."""
    monkeypatch.syspath_prepend(folder)
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))  # of processes that compile
    monkeypatch.setenv(plugins.VARIABLE, MODULE)
    for command in (
        "app",
        "segment",
    ):  # a process of its own would read its options after plug-ins alone
        monkeypatch.delitem(sys.modules, f"znnpy.cli.{command}")
        monkeypatch.delattr(znnpy.cli, command)
    declared = dict(declarations._DECLARED)
    yield folder
    declarations._DECLARED.clear()
    declarations._DECLARED.update(declared)
    for name, registry in REGISTRIES.items():
        registry.pop(name, None)
    plugins._loaded.discard(MODULE)
    sys.modules.pop(MODULE, None)


def test_the_page_names_all_registries_and_adds_to_all_that_are_read() -> None:
    table = re.findall(r"`(znnpy\.[a-z_.]+)\.([A-Z_]+)`", PAGE.read_text())
    found = {
        getattr(__import__(module, fromlist=[name]), name) is not None for module, name in table
    }
    assert found == {True}
    listed = {id(getattr(sys.modules[module], name)) for module, name in table}
    assert listed == {id(registry) for registry in (*REGISTRIES.values(), OUTPUTS)}


def test_contributing_shows_a_part_of_it() -> None:
    shown = [block.text for block in blocks(ROOT / "CONTRIBUTING.md") if block.language == "python"]
    assert shown
    assert all(block in text() for block in shown)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_run_with_one_of_each(
    named: Path, capsys: pytest.CaptureFixture[str], precision: str
) -> None:
    """From volumes in its format to scores by its metric."""
    assert status_of("train", "config.yaml", "--set", f"training.precision={precision}") == 0
    assert "Dice score" in capsys.readouterr().out
    assert status_of("evaluate", "run", "--json") == 0
    scores = json.loads(capsys.readouterr().out)["evaluations"][0]["scores"]
    assert all(0 <= it["dice_score"] <= 1 for it in scores.values())
    assert status_of("predict", "run", "--input", "raw.bricks", "--output", "found.h5") == 0
    with open_volume("found.h5") as volume:
        assert volume.shape == (1, 7, 10, 10)
    log = (named / "run" / "log.jsonl").read_text().splitlines()
    assert sum(json.loads(line).get("loss", -1) > 0 for line in log) == 4


def test_objects_by_its_method(named: Path) -> None:
    labels = np.fromfile("labels.bricks", np.uint8, offset=20).reshape(9, 14, 15)
    bricks(named / "found.bricks", 255 * labels)
    line = ("segment", "found.bricks", "--output", "objects.h5", "--method", "planes")
    assert status_of(*line, "--kind", "foreground") == 0
    with open_volume("objects.h5", role="labels") as volume:
        assert np.array_equal(volume.read_all()[0], labels * np.arange(1, 10)[:, None, None])
    with open_volume("found.bricks") as volume:
        volume.neighbours = ((-1, 0, 0),)
        with pytest.raises(ZnnpyError, match="planes needs a boundary map or a foreground"):
            segment(volume, Request("planes"))


def test_kernels_learn_what_the_float64_meaning_learns(named: Path) -> None:
    plugins.load()
    network = {
        "layers": load_config("config.yaml").model_dump(by_alias=True, exclude_none=True)[
            "network"
        ]["layers"]
    }
    rng, found = np.random.default_rng(1), []
    for precision in ("float32", "float64"):
        loss = load_config("config.yaml").training.loss
        optimizer = znnpy.Optimizer("lion", beta1=0.8)
        how = {"loss": loss, "optimizer": optimizer, "conv": "direct"}
        how["hardware"] = znnpy.Hardware(precision=precision)
        with znnpy.Model(network, (3, 4, 5), seed=3, threads=2, **how) as model:
            if not found:
                x = rng.standard_normal((1, 1, *model.input_shape), np.float32)
                target = 2 * rng.standard_normal((1, 1, 3, 4, 5), np.float32)
            losses = [model.step(x, target, learning_rate=0.01) for _ in range(5)]
            found.append((losses, dict(model.parameters)))
    (single, parameters), (double, exact) = found
    assert double[-1] < double[0]
    np.testing.assert_allclose(single, double, rtol=1e-5)
    for name, array in exact.items():
        np.testing.assert_allclose(parameters[name], array, atol=1e-5)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("kind: huber", "kind: hubber", "config.yaml:13: training.loss.kind: is 'hubber'; did you mean 'huber'"),
        ("delta: 0.3", "detla: 0.3", "training.loss.detla: unknown key 'detla'|did you mean 'delta'"),
        ("delta: 0.3", "delta: 0", "training.loss.delta: must be greater than 0"),
        ("kind: lion", "kind: lyon", "training.optimizer.kind: is 'lyon'; did you mean 'lion'"),
        ("beta1: 0.8", "beta1: 1", "training.optimizer.beta1: must be less than 1"),
        ("function: bounded", "function: bounde", "config.yaml:3: .*function: is 'bounde'; did you mean 'bounded'"),
        ("trim:", "trin:", "config.yaml:4: .*did you mean 'trim'"),
        ("trim: [0, 1, 2]", "trim: [0, 1, -2]", "config.yaml:4: network.layers.1.trim: must be at least 0"),
    ],
)  # fmt: skip
def test_errors_say_what_is_near(named: Path, before: str, after: str, words: str) -> None:
    plugins.load()
    assert before in CONFIG
    Path("config.yaml").write_text(CONFIG.replace(before, after))
    with pytest.raises(ConfigError, match=words):
        load_config("config.yaml")


def test_what_files_are_not_and_methods_are_not(
    named: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugins.load()
    Path("other.bricks").write_bytes(b"BRICKS02")
    with pytest.raises(ZnnpyError, match=r"no HDF5, .*CIFAR \(.bin\) or BRICKS file"):
        open_volume("other.bricks")
    with pytest.raises(ZnnpyError, match="is a BRICKS file and has no datasets"):
        open_volume("raw.bricks:raw")
    assert status_of("predict", "run", "--input", "raw.bricks", "--output", "a.bricks") != 0
    assert status_of("segment", "raw.bricks", "--output", "a.h5", "--method", "plane") == 2
    assert "'planes'" in capsys.readouterr().err


def test_schema_template_and_help_show_them(
    named: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("schema") == 0
    schema = json.loads(capsys.readouterr().out)["$defs"]
    training = schema["TrainingSection"]["properties"]
    assert "huber" in training["loss"]["discriminator"]["mapping"]
    assert "lion" in training["optimizer"]["discriminator"]["mapping"]
    assert schema["Huber"]["properties"]["delta"]["default"] == 1
    for section in ("NodeSection", "ConvLayer", "UnetSection"):
        assert "bounded" in schema[section]["properties"]["function"]["enum"]
    assert schema["LayerSection"]["properties"]["trim"]
    assert schema["TrimEdge"]["properties"]["kind"]["const"] == "trim"
    assert status_of("init") == 0
    template = capsys.readouterr().out
    assert "  # loss: {kind: huber, delta: 1}\n" in template
    assert "  # optimizer: {kind: lion, beta1: 0.9, beta2: 0.99}\n" in template
    assert "  #   - trim: 1  # voxels removed where the axes begin\n" in template
    assert re.search(r"relu, .*\bbounded\b", template)
    assert status_of("segment", "--help") == 0
    assert "one object a plane" in re.sub(r"[\s│]+", " ", capsys.readouterr().out)


def test_nothing_is_loaded_that_nobody_named(folder: Path) -> None:
    """In a process of its own, from the folder where the plug-in lies."""
    words = [sys.executable, "-m", "znnpy", "check", "config.yaml"]
    alone = {key: value for key, value in os.environ.items() if key != plugins.VARIABLE}
    done = subprocess.run(words, env=alone, capture_output=True, text=True)
    assert done.returncode == 1
    assert "is 'huber'" in done.stderr
    named = alone | {plugins.VARIABLE: MODULE}
    done = subprocess.run(words, env=named, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_installed_package_is_loaded(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its entry point; its module is found where the package is."""
    monkeypatch.delenv(plugins.VARIABLE)
    info = named / "toys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\nmine = {MODULE}\n")
    plugins.load()
    assert all(name in registry for name, registry in REGISTRIES.items())


def test_one_that_cannot_be_loaded_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(plugins.VARIABLE, "no_such_module_here")
    assert status_of("schema") == 1
    assert (
        "plug-in no_such_module_here, named by ZNNPY_PLUGINS, cannot be loaded"
        in capsys.readouterr().err
    )


def test_names_that_are_taken_are_refused(named: Path) -> None:
    plugins.load()
    for name, registry in REGISTRIES.items():
        with pytest.raises(ZnnpyError, match=f"there is a .* '{name}' already"):
            registry.add(type("Entry", (), {"name": name})())
    with pytest.raises(ZnnpyError, match="'mse' is an alias of loss 'square'"):
        LOSSES.add(type("Entry", (), {"name": "mse"})())


def test_afterwards_nothing_of_it_is_left() -> None:
    assert "huber" not in str(json_schema())
