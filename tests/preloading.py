"""Builds a library from C to be preloaded, and runs scripts with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # syncs cost nothing there
EVERY_CALL = "ZNNPY_EVERY_CALL" in os.environ  # takes every call to the disk, else a share of them
FLAGS = ("-O1", "-shared", "-fPIC", "-ldl")


def built(source: Path, folder: Path) -> str:
    """The library made from a file."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to make the library that is preloaded")
    made = str(folder / f"{source.stem}.so")
    subprocess.run([compiler, str(source), "-o", made, *FLAGS], check=True)
    return made


def run_with(library: str, script: Path, *words: object) -> str:
    """What a script prints that is run with the library."""
    here = Path(__file__).parent
    helpers = [str(here), str(here / "infer"), str(here / "train")]
    found = subprocess.run(
        [sys.executable, str(script), *map(str, words)],
        env={
            **os.environ,
            "LD_PRELOAD": library,
            "PYTHONPATH": os.pathsep.join([*sys.path, *helpers]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout
