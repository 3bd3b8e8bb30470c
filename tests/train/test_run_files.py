"""The small files of a run hold anything: one line says what is wrong, or nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_run import write_config, znnpy

from znnpy.config import load_config
from znnpy.errors import RunError
from znnpy.network import self_contained
from znnpy.train.progress import Quiet
from znnpy.train.rundir import RunDirectory
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
    files = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
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
