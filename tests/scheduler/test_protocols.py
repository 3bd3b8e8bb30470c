"""The scheduler's protocols under the model checker and the thread sanitizer."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
COMPILERS = ("cc", "gcc", "clang", "clang-19")
needs_spin = pytest.mark.skipif(
    not (shutil.which("spin") and any(map(shutil.which, COMPILERS))),
    reason="needs the model checker spin and a C compiler",
)
needs_sanitizer = pytest.mark.skipif(
    not (shutil.which("clang-19") and shutil.which("setarch")), reason="needs clang-19 and setarch"
)


def check(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_spin
def test_combining_tree_model() -> None:
    assert check("spin_check", "spin_tree.pml").count("as it must") == 3


@needs_spin
@pytest.mark.slow
def test_deque_and_parking_model() -> None:
    assert check("spin_check", "spin_deque.pml").count("as it must") == 11


@needs_spin
@pytest.mark.slow
def test_light_tasks_model() -> None:
    assert check("spin_check", "spin_light.pml").count("as it must") == 4


@needs_spin
def test_mailbox_model() -> None:
    assert check("spin_check", "spin_mailbox.pml").count("as it must") == 4


@needs_sanitizer
@pytest.mark.slow
def test_thread_sanitizer() -> None:
    assert check("tsan_check").count("as it must") == 4


@pytest.mark.slow
def test_a_missing_tool_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for script, tool in (("spin_check", "spin"), ("tsan_check", "clang-19")):
        done = subprocess.run(
            [sys.executable, str(SCRIPTS / script)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert f"apt-get install {tool}" in done.stdout
