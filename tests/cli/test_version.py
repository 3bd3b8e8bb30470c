"""What `znnpy version` tells, and what it keeps to itself."""

from __future__ import annotations

import getpass
import platform
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from called import status_of

import znnpy
from znnpy.cli import version


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert status_of("version", *words) == 0
    return capsys.readouterr().out


def test_alone_it_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys) == f"znnpy {znnpy.__version__}\n"


def test_all_tells_versions_and_machine(capsys: pytest.CaptureFixture[str]) -> None:
    lines = dict(line.split(maxsplit=1) for line in told(capsys, "--all").splitlines())
    assert lines["numpy"] == np.__version__
    assert lines["python"].endswith(platform.python_version())
    assert {"cpu", "vectors", "cores", "memory", "cache", "numba", "HDF5", "MPI"} <= set(lines)
    assert "pytest" not in lines


def test_all_names_no_person_and_no_host(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "_cache", lambda: version._homeless(f"{Path.home()}/caches"))
    text = told(capsys, "--all")
    assert "~/caches" in text
    assert str(Path.home()) not in text
    assert socket.gethostname() not in text.split()
    assert getpass.getuser() not in text.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ann", "~"),
        ("kernel cache /home/ann/x is", "kernel cache ~/x is"),
        ("/home/anna/x", "/home/anna/x"),
    ],
)
def test_homes_have_no_names(text: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert version._homeless(text) == expected


def test_without_mpi_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert "none (" in told(capsys, "--all").splitlines()[-1]
