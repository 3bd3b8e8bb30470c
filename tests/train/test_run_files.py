"""The small files of a run hold anything: one line says what is wrong, or nothing is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rewriting import rewritten, with_array, with_meta
from small_run import write_config, znnpy

from znnpy.config import load_config
from znnpy.errors import RunError
from znnpy.network import self_contained
from znnpy.train.environment import differences
from znnpy.train.progress import Quiet
from znnpy.train.run_directory import RunDirectory
from znnpy.train.session import train
from znnpy.train.start import look, read_run


class Heard(Quiet):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    znnpy("train", write_config(folder, 2))
    return folder / "run"


@pytest.fixture
def restored(run: Path):  # type: ignore[no-untyped-def]
    files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    yield run
    for path, data in files.items():
        path.write_bytes(data)


def looked(run: Path) -> list[str]:
    """What is said of a run that is about to go on."""
    heard = Heard()
    with RunDirectory.open(run) as directory:
        look(directory, self_contained(load_config(run.parent / "config.yaml")), heard)
    return heard.said


STRANGERS = [
    "null",
    "[]",
    "5",
    '"x"',
    "{}",
    "[[]]",
    '{"conv1": 5, "conv2": []}',
    "{",
    "\0",
    "[" * 9999,
]


@pytest.mark.slow
@pytest.mark.parametrize("text", STRANGERS)
def test_a_plan_that_is_none_is_one_line(restored: Path, text: str) -> None:
    (restored / "plan.json").write_text(text)
    for use in (looked, lambda path: read_run(path, Quiet())):
        with pytest.raises(RunError, match=r"plan\.json is damaged: ") as caught:
            use(restored)
        assert "\n" not in str(caught.value)


@pytest.mark.quick(1)
@pytest.mark.parametrize("text", STRANGERS)
def test_versions_that_are_none_are_a_warning(restored: Path, text: str) -> None:
    (restored / "versions.json").write_text(text)
    (line,) = looked(restored)
    assert line.startswith("warning: ")
    assert "\n" not in line
    assert len(line) < 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plan.json", "fftw.wisdom"])
def test_lost_choices_are_said_before_training_goes_on(tmp_path: Path, name: str) -> None:
    path = write_config(tmp_path, 2)
    path.write_text(path.read_text().replace("conv: direct", "conv: fft"))
    train(load_config(path), reporter=Quiet())
    (tmp_path / "run" / name).unlink()
    for iterations, expected in ((3, 1), (4, 0)):
        heard = Heard()
        train(load_config(path, (f"training.iterations={iterations}",)), reporter=heard)
        found = [line for line in heard.said if "is lost" in line]
        assert len(found) == expected
        assert all(f"{tmp_path / 'run' / name} is lost" in line for line in found)


def test_a_lost_plan_is_said_to_who_uses_the_run(restored: Path) -> None:
    (restored / "plan.json").unlink()
    heard = Heard()
    read_run(restored, heard)
    (line,) = heard.said
    assert "plan.json is lost" in line
    assert looked(restored) == []  # all is trained, its plan is not asked for


@pytest.mark.parametrize("change", ["norm=instance", "norm=null", "function=prelu", "function=elu"])
def test_weights_are_not_read_into_another_network(restored: Path, change: str) -> None:
    """Also one that holds arrays of the same names and shapes."""
    with pytest.raises(
        RunError, match=r"another network; changed: network.layers.0.conv.[a-z.]+ \(was"
    ):
        read_run(restored, Quiet(), (f"network.layers.0.conv.{change}",))
    assert read_run(restored, Quiet(), ("network.name=other", "run.threads=1")).checkpoint


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("function: relu", "function: elu"),
        ("epsilon: 1e-05", "epsilon: 1e-03"),
        ("keep: 0.8", "keep: 0.7"),
        ("channels: 4", "channels: 5"),
        ("kind: binomial_cross_entropy", "kind: square"),
    ],
)
def test_a_config_that_was_edited_does_not_get_weights_of_another_network(
    restored: Path, was: str, now: str
) -> None:
    """Neither to predict with nor to train on, if the config outside was edited alike."""
    config = restored / "config.yaml"
    text = config.read_text()
    assert was in text
    config.write_text(text.replace(was, now, 1))
    words = r"iteration-000000002.npz has weights of another network than .*config.yaml describes"
    with pytest.raises(RunError, match=words):
        read_run(restored, Quiet())
    with RunDirectory.open(restored) as run, pytest.raises(RunError, match=words):
        look(run, load_config(config, ("training.iterations=3",)), Quiet())


def test_a_config_may_be_edited_where_the_network_stays_the_same(restored: Path) -> None:
    config, before = restored / "config.yaml", read_run(restored, Quiet())
    text = config.read_text()
    for was, now in (
        ("network:", "network:\n  name: renamed"),
        ("init: {kind: he}", "init: {kind: xavier}"),
        ("groups: 1, ", ""),
        ("rebalance: patch", "rebalance: volume"),
    ):
        assert was in text
        text = text.replace(was, now, 1)
    config.write_text(text)
    assert read_run(restored, Quiet()).checkpoint.network == before.checkpoint.network


def newest(run: Path) -> Path:
    return max((run / "checkpoints").iterdir())


def test_checkpoints_without_the_name_of_a_network_are_read(restored: Path) -> None:
    rewritten(newest(restored), with_meta(network=""))
    assert read_run(restored, Quiet()).checkpoint.iteration == 2


@pytest.mark.parametrize(
    "name",
    [
        "parameters/layer1.running_variance",
        "optimizer_state/conv1/variance",
        "optimizer_state/layer1.scale/variance",
    ],
)
def test_squares_below_0_are_no_state(restored: Path, name: str) -> None:
    path, heard = newest(restored), Heard()
    with np.load(path) as file:
        wrong = -1 - file[name]
    rewritten(path, with_array(name, wrong))
    assert read_run(restored, heard).checkpoint.iteration == 0
    line, taken = heard.said
    assert f"{path} is damaged ({name!r} has values below 0" in line
    assert taken == "warning: weights of iteration 0 are taken, with which the run began"


def test_where_no_checkpoint_can_be_read_nobody_says_that_there_is_none(restored: Path) -> None:
    for path in (restored / "checkpoints").iterdir():
        path.write_bytes(b"")
    for read in (lambda: read_run(restored, Quiet()), lambda: looked(restored)):
        with pytest.raises(RunError, match=r"no checkpoint in .* can be read; train anew"):
            read()


def test_a_checkpoint_of_other_batches_is_not_trained_on(restored: Path) -> None:
    rewritten(newest(restored), with_meta(next_sample=5))
    with pytest.raises(RunError, match="goes on with sample 5, and batches of 2 have come to 4"):
        looked(restored)


def test_versions_of_what_is_new_or_gone_count_as_changed() -> None:
    old, new = {"numpy": "2.0", "fftw": "3.3"}, {"numpy": "2.0", "mpi": "4.1"}
    assert differences(old, new) == ["fftw 3.3 -> None", "mpi None -> 4.1"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_the_command_says_it_in_a_line(restored: Path, command: str) -> None:
    (restored / "plan.json").write_text('{"conv1": 5, "conv2": 5}')
    what = restored if command == "evaluate" else restored.parent / "config.yaml"
    done = znnpy(command, what, code=1)
    assert done.stderr.splitlines() == [
        f"znnpy: {restored / 'plan.json'} is damaged: the saved plan of 'conv1' is no table of "
        "passes; put the file back, or start anew with --overwrite"
    ]
