"""Commands under mpiexec: what is wrong is said once, and what one process does is not done by several."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ranked import SECONDS, mpiexec

from znnpy.config import template

START = "from znnpy.cli import main; main()"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(template())
    return path


def over(
    *words: object, ranks: int = 2, script: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Some ranks of a command, or of a script with these words."""
    line = [sys.executable, "-c", script or START, *words]
    return subprocess.run(
        mpiexec(ranks, *line), capture_output=True, text=True, timeout=SECONDS, cwd=cwd
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "CONFIG", "--bogus"], "No such option"),
        (["train"], "Missing argument"),
        (["train", "CONFIG", "--max-memory", "soon"], "is not like 8GiB"),
        (["train", "CONFIG", "--set", "training.optimizer=adamm"], "did you mean"),
        (["train", "nowhere.yaml"], "nowhere.yaml"),
        (["profile", "CONFIG", "--threads", "some"], "is not like 1,2,4"),
        (["profile"], "give either a config file"),
        (["check", "nowhere.yaml"], "nowhere.yaml"),
        (["chekc", "CONFIG"], "No such command"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_once(config: Path, words: list[str], said: str) -> None:
    done = over(*(config if word == "CONFIG" else word for word in words))
    assert done.returncode != 0
    assert done.stderr.lower().count(said.lower()) == 1, done.stderr
    assert "rank 1" not in done.stderr + done.stdout
    assert [path.name for path in config.parent.iterdir()] == [config.name]


ONE = """
import os, sys
from znnpy.cli import app
from znnpy.errors import ZnnpyError
words, wrong = sys.argv[1:-1], os.environ["PMI_RANK"] == "1"
def refuse():
    raise ZnnpyError("this host has too little memory")
if wrong and sys.argv[-1] == "refused":
    app.refuse_little_memory = refuse
elif wrong:
    words.append(sys.argv[-1])
app.main(words)
"""


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("word", "said"), [("--bogus", "--bogus"), ("refused", "this host has too little memory")]
)
def test_what_is_wrong_with_one_rank_alone_is_said_with_its_number(
    config: Path, word: str, said: str
) -> None:
    done = over("train", config, word, ranks=3, script=ONE)
    assert done.returncode != 0
    assert done.stderr.count(said) == 1, done.stderr
    assert "znnpy: rank 1 (pid " in done.stderr
    assert [path.name for path in config.parent.iterdir()] == [config.name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["predict", "run", "--input", "a.h5", "--output", "b.h5"],
        ["evaluate", "run"],
        ["segment", "a.h5", "--output", "b.h5"],
        ["view", "a.h5"],
        ["init", "config.yaml"],
    ],
)
def test_what_one_process_does_is_refused(tmp_path: Path, words: list[str]) -> None:
    done = over(*words, cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr.count(f"znnpy {words[0]} is done by one process, and 2 were started") == 1
    assert ("--dask" in done.stderr) == (words[0] == "predict")


WARNS = """
import sys, warnings
from znnpy.cli import app
from znnpy.errors import WaitWarning
def warn(*_, **__):
    warnings.warn("labels are odd")
    warnings.warn("waits for process 7", WaitWarning)
app._commands = lambda _: warn
app.main(["train"])
"""


@pytest.mark.slow
def test_warnings_are_said_once_but_every_rank_says_what_it_waits_for() -> None:
    said = over(ranks=3, script=WARNS).stderr.splitlines()
    waits = [
        "warning: waits for process 7",
        *(f"warning: rank {n} waits for process 7" for n in (1, 2)),
    ]
    assert sorted(said) == sorted(f"znnpy: {it}" for it in ["warning: labels are odd", *waits])


@pytest.mark.slow
def test_one_task_of_a_step_is_told_how_to_go_on(tmp_path: Path) -> None:
    step = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    line = [sys.executable, "-c", "import sys; sys.modules['mpi4py'] = None; " + START]
    line += ["init", str(tmp_path / "config.yaml")]
    keys = {"env": os.environ | step, "capture_output": True, "text": True, "timeout": SECONDS}
    done = subprocess.run(line, **keys)  # type: ignore[call-overload]
    assert done.returncode == 1
    assert "env -u SLURM_STEP_NUM_TASKS znnpy init ..." in done.stderr
    done = subprocess.run(["env", "-u", "SLURM_STEP_NUM_TASKS", *line], **keys)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "config.yaml").exists()


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--version"], ["train", "--help"], ["schema"]])
def test_what_is_told_is_told_once(words: list[str]) -> None:
    alone = subprocess.run(
        [sys.executable, "-c", START, *words], capture_output=True, text=True, timeout=SECONDS
    )
    done = over(*words)
    assert (done.returncode, done.stdout) == (0, alone.stdout)
