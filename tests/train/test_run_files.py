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


@pytest.mark.parametrize("text", STRANGERS)
def test_a_plan_that_is_none_is_one_line(restored: Path, text: str) -> None:
    (restored / "plan.json").write_text(text)
    for use in (looked, lambda path: read_run(path, Quiet())):
        with pytest.raises(RunError, match=r"plan\.json is damaged: ") as caught:
            use(restored)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", STRANGERS)
def test_versions_that_are_none_are_a_warning(restored: Path, text: str) -> None:
    (restored / "versions.json").write_text(text)
    (line,) = looked(restored)
    assert line.startswith("warning: ")
    assert "\n" not in line
    assert len(line) < 1000


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_the_command_says_it_in_a_line(restored: Path, command: str) -> None:
    (restored / "plan.json").write_text('{"conv1": 5, "conv2": 5}')
    what = restored if command == "evaluate" else restored.parent / "config.yaml"
    done = znnpy(command, what, code=1)
    assert done.stderr.splitlines() == [
        f"znnpy: {restored / 'plan.json'} is damaged: the saved plan of 'conv1' is no table of "
        "passes; put the file back, or start anew with --overwrite"
    ]
