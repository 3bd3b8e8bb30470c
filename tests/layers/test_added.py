"""What others add to the lists of functions and edge kinds works as what znnpy has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_a_function_and_an_edge_kind_from_outside() -> None:
    words = [sys.executable, "-m", "pytest", "-n0", "-x", "-p", "no:cacheprovider"]
    folders = [str(HERE), str(HERE.parent / "engine"), os.environ.get("PYTHONPATH")]
    done = subprocess.run(
        [*words, str(HERE / "added_cases.py")],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(filter(None, folders))},  # also of processes that compile
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
