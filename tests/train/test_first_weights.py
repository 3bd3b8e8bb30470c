"""Runs that begin with the weights of another run or of a file, and freeze some of them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranked import SECONDS, mpiexec
from small_run import command, final, write_config, znnpy

from znnpy.config import load_config
from znnpy.errors import ConfigError
from znnpy.network import initial_parameters, trained_network
from znnpy.train import start
from znnpy.train.checkpoint import listed
from znnpy.train.first_weights import FirstWeights, first_weights, renamed
from znnpy.train.progress import Quiet
from znnpy.train.run_directory import RunDirectory
from znnpy.train.start import contents_of, read_run

SETS = (
    "training.iterations=6",
    "training.batch=4",
    "training.microbatch=1",
    "training.validation={every: 3, patches: 1}",
    "run.checkpoint={every: 3, keep: 9}",
    "run.threads=1",
)


def words(*sets: str) -> list[str]:
    return [word for value in sets for word in ("--set", value)]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with averages."""
    folder = tmp_path_factory.mktemp("pretrained")
    znnpy("train", write_config(folder), *words(*SETS, "training.ema=0.9"))
    return folder / "run"


def begun(folder: Path, *sets: str) -> FirstWeights:
    config = load_config(write_config(folder), (*SETS, *sets))
    found = first_weights(config, trained_network(config), contents_of(config))
    assert found
    return found


def parameters(run: Path, which: Any = "latest") -> dict[str, Any]:
    return read_run(run, Quiet(), which=which).checkpoint.parameters


def test_a_run_begins_with_what_another_predicts_from(pretrained: Path, tmp_path: Path) -> None:
    """But for shifts of weighted classes, which it will learn itself."""
    saved = read_run(pretrained, Quiet(), ["inference.recalibrate=false"])
    found = begun(tmp_path, f"training.start_from={pretrained}")
    assert (found.missing, found.unused) == ((), ())
    wanted = saved.weights.parameters
    assert all(np.array_equal(found.parameters[name], wanted[name]) for name in wanted)
    config = tmp_path / "config.yaml"
    said = znnpy("train", config, *words(*SETS, f"training.start_from={pretrained}")).stderr
    assert f"begins with {len(wanted)} of {len(wanted)} parameters from {pretrained}" in said
    first = parameters(tmp_path / "run", 0)
    assert all(np.array_equal(first[name], wanted[name]) for name in wanted)
    seen = json.loads(
        znnpy("check", config, "--json", *words(f"training.start_from={pretrained}")).stdout
    )
    assert [line.split(" from")[0] for line in seen["weights"]] == [
        f"begins with {len(wanted)} of {len(wanted)} parameters"
    ]
    assert not seen["warnings"]
    assert not np.array_equal(parameters(tmp_path / "run")["conv1"], wanted["conv1"])


@pytest.mark.parametrize("which", ["best", "3", "0"])
def test_another_checkpoint_may_be_named(pretrained: Path, tmp_path: Path, which: str) -> None:
    found = begun(tmp_path, f"training.start_from={{weights: {pretrained}, checkpoint: {which}}}")
    saved = read_run(pretrained, Quiet(), which="best" if which == "best" else int(which))
    assert np.array_equal(found.parameters["conv1"], saved.weights.parameters["conv1"])


def test_names_are_mapped_and_all_else_is_listed(tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path), SETS)
    drawn = initial_parameters(trained_network(config), 7)
    arrays = {f"net.{name}": values.astype(np.float64) for name, values in drawn.items()}
    arrays |= {"net.head": np.ones(3), "step": np.array(5)}
    np.savez(tmp_path / "other.npz", **arrays)
    rename = '{"net.conv2": null, "net.*": "*"}'
    setting = f"training.start_from={{weights: {tmp_path / 'other.npz'}, rename: {rename}}}"
    found = begun(tmp_path, setting)
    assert found.missing == ("conv2",)
    assert set(found.unused) == {"net.conv2", "net.head", "step"}
    own = initial_parameters(trained_network(config), 0)
    for name, values in found.parameters.items():
        assert values.dtype == np.float32
        assert np.array_equal(values, own[name] if name == "conv2" else drawn[name])
    said = znnpy("check", tmp_path / "config.yaml", *words(*SETS, setting))
    (line,) = (line for line in said.stdout.splitlines() if line.startswith("weights"))
    assert line.startswith(f"weights         begins with {len(own) - 1} of {len(own)} parameters")
    assert "\nwarning: not there, and random: conv2" in said.stdout
    said = znnpy("train", tmp_path / "config.yaml", *words(*SETS, setting)).stderr
    assert "warning: not there, and random: conv2" in said
    assert "warning: there, and not used: net.conv2, net.head, step" in said


@pytest.mark.parametrize(
    ("name", "rename", "wanted"),
    [
        ("a.b", {}, "a.b"),
        ("a.b", {"a.b": "c"}, "c"),
        ("a.b", {"a.*": "x.*.y"}, "x.b.y"),
        ("a.b", {"*.b": "*"}, "a"),
        ("a.b", {"a.*": None, "*": "x*"}, None),
        ("ab", {"ab*b": "x"}, "ab"),
        ("a.b", {"c*": "x", "*": "x*"}, "xa.b"),
    ],
)
def test_patterns(name: str, rename: dict[str, str | None], wanted: str | None) -> None:
    assert renamed(name, rename) == wanted


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


REFUSED: dict[str, tuple[dict[str, Any] | None, str, str]] = {
    "none": (None, "", "is neither a run directory nor a file"),
    "another shape": (
        {"conv1": np.ones((2, 2))},
        "",
        r"shape \(2, 2\) there, and 'conv1' \(4, 1, 1, 3, 3\)",
    ),
    "no name": ({"other": np.ones(2)}, "", "holds nothing by the name of a parameter here"),
    "not finite": ({"conv1": np.full((4, 1, 1, 3, 3), np.nan)}, "", "not finite"),
    "too large": ({"conv1": np.full((4, 1, 1, 3, 3), 1e300)}, "", "beyond those of float32"),
    "whole numbers": ({"conv1": np.ones((4, 1, 1, 3, 3), int)}, "", "no floating-point numbers"),
    "a pickle": ({"conv1": np.array([{}, 1], object)}, "", "no header"),
    "a negative variance": ({"layer1.running_variance": -np.ones(4)}, "", "below 0"),
    "two for one": (
        {"a": np.ones((4, 1, 1, 3, 3)), "b": np.ones((4, 1, 1, 3, 3))},
        ', rename: {"*": conv1}',
        "'a' and 'b' there both become 'conv1' here",
    ),
    "a checkpoint of none": (
        {"parameters/conv1": np.ones((4, 1, 1, 3, 3)), "meta": np.array("[]")},
        "",
        "cannot be read",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_holds_no_weights_is_refused_by_its_line(tmp_path: Path, name: str) -> None:
    arrays, more, said = REFUSED[name]
    if arrays is not None:
        np.savez(tmp_path / "other.npz", **arrays)
    path = write_config(tmp_path)
    text = path.read_text()
    at = text.splitlines().index("training:") + 2
    path.write_text(
        text.replace("training:\n", f"training:\n  start_from: {{weights: other.npz{more}}}\n")
    )
    config = load_config(path, SETS)
    with pytest.raises(ConfigError, match=said) as caught:
        first_weights(config, trained_network(config), contents_of(config))
    assert str(caught.value).startswith(f"{path}:{at}: training.start_from: ")
    for words_of in (["train", path], ["check", path]):
        assert "training.start_from" in znnpy(*words_of, *words(*SETS), code=1).stderr
    assert not (tmp_path / "run").exists()


def test_damage_and_missing_checkpoints_are_refused(pretrained: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no checkpoint of iteration 5"):
        begun(tmp_path, f"training.start_from={{weights: {pretrained}, checkpoint: 5}}")
    copied = tmp_path / "weights.npz"
    copied.write_bytes(listed(pretrained / "checkpoints")[0].read_bytes()[:-40])
    with pytest.raises(ConfigError, match="cannot be read"):
        begun(tmp_path, f"training.start_from={copied}")


@pytest.mark.parametrize("inside", ["", "checkpoints", "checkpoints/*"])
def test_a_run_that_is_overwritten_is_no_beginning(
    pretrained: Path, tmp_path: Path, inside: str
) -> None:
    folder = shutil.copytree(pretrained.parent, tmp_path / "copy")
    weights = next(iter((folder / "run").glob(inside))) if inside else folder / "run"
    config = load_config(folder / "config.yaml", (*SETS, f"training.start_from={weights}"))
    with (
        RunDirectory.open(folder / "run", overwrite=True) as run,
        pytest.raises(ConfigError, match=r"start_from: .* is of the run that --overwrite removes"),
    ):
        start.look(run, config, Quiet())
    assert listed(folder / "run" / "checkpoints")


def test_patterns_that_are_none_are_refused(tmp_path: Path) -> None:
    for rename in ("{'a*b*': c}", "{a: 'c*'}"):
        said = znnpy(
            "check", write_config(tmp_path),
            *words(f"training.start_from={{weights: x.npz, rename: {rename}}}"), code=1,
        ).stderr  # fmt: skip
        assert "training.start_from.rename" in said
        assert "one * at most" in said


TUNED = (*SETS, "training.freeze=[conv1, 'layer1*']", "training.ema=0.9", "training.clip_norm=0.5")


def whole(run: Path) -> list[object]:
    *found, _, _ = final(run)
    return found


@pytest.fixture(scope="module")
def tuned(pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    znnpy("train", write_config(folder), *words(*TUNED, f"training.start_from={pretrained}"))
    return folder / "run"


def test_what_is_frozen_stays(pretrained: Path, tuned: Path) -> None:
    wanted, found = read_run(pretrained, Quiet()).weights.parameters, read_run(tuned, Quiet())
    for used in (found.checkpoint.parameters, found.weights.parameters):
        assert np.array_equal(used["conv1"], wanted["conv1"])
        assert np.array_equal(used["layer1.scale"], wanted["layer1.scale"])
        assert not np.array_equal(used["conv2"], wanted["conv2"])


def test_another_run_begins_with_what_was_frozen(tuned: Path, tmp_path: Path) -> None:
    """Whose average never began."""
    wanted = read_run(tuned, Quiet(), ["inference.recalibrate=false"]).weights.parameters
    file = listed(tuned / "checkpoints")[0]
    for where in (tuned, file):
        found = begun(tmp_path, f"training.start_from={where}").parameters
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_stopped_at_its_beginning_or_later_it_has_the_same_bits(
    pretrained: Path, tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before its first checkpoint."""
    config = write_config(tmp_path)
    line = ["train", config, *words(*TUNED, f"training.start_from={pretrained}")]

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(start.checkpoints, "discard_newer", killed)
        znnpy(*line, code=130)
    assert (tmp_path / "run/config.yaml").exists()
    assert not listed(tmp_path / "run/checkpoints")
    znnpy(*line)
    assert whole(tmp_path / "run") == whole(tuned)
    for path in listed(tmp_path / "run/checkpoints")[:2]:
        path.unlink()
    (tmp_path / "run/result.json").unlink()
    znnpy(*line)
    assert whole(tmp_path / "run") == whole(tuned)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["tree", "multicolor"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_have_the_same_bits(
    pretrained: Path, tuned: Path, tmp_path: Path, ranks: int, strategy: str
) -> None:
    sets = (*TUNED, f"training.start_from={pretrained}", f"distributed.strategy={strategy}")
    line = mpiexec(ranks, *command("train", write_config(tmp_path), *words(*sets)))
    for _ in "12":  # the second time it is finished
        assert subprocess.run(line, check=False, timeout=SECONDS).returncode == 0
    assert whole(tmp_path / "run") == whole(tuned)


def test_others_are_refused_for_a_run_that_was_begun(tuned: Path, pretrained: Path) -> None:
    config = tuned.parent / "config.yaml"
    line = ["train", config, *words(*TUNED, f"training.start_from={pretrained}")]
    said = znnpy(*line, *words("training.freeze=[conv2]"), code=1).stderr
    assert "training.freeze (was ['conv1'" in said
    said = znnpy(
        *line, *words(f"training.start_from={{weights: {pretrained}, checkpoint: best}}"), code=1
    ).stderr
    assert "training.start_from.checkpoint (was 'latest', now 'best')" in said


def test_a_pattern_that_names_nothing_is_refused_by_its_line(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    path.write_text(
        path.read_text().replace("training:\n", "training:\n  freeze: [conv1, conv7]\n")
    )
    for name in ("train", "check"):
        said = znnpy(name, path, *words(*SETS), code=1).stderr
        assert (
            ": training.freeze.1: 'conv7' names no parameter that is learned (there are: conv1"
            in said
        )
        assert f"{path}:" in said
    assert not (tmp_path / "run").exists()
