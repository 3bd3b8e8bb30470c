"""Disks that are full or take no larger files, as their users meet them: one line, then go on."""

from __future__ import annotations

import importlib.util
import json
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from small_run import apart, command, state, write_config, znnpy

KIB = 1024
STACK = (20, 40, 40)


def sized(folder: Path, size: int, how: str = "size") -> None:
    """Give a file system in memory another size, in KiB."""
    options = f"{how},size={size}k" if how == "remount" else f"size={size}k"
    words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        sized(folder, 64)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of its own can be mounted here ({error})")
    yield folder
    with suppress(subprocess.CalledProcessError):
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and a stack."""
    folder = tmp_path_factory.mktemp("trained")
    znnpy("train", write_config(folder, 2))
    with h5py.File(folder / "stack.h5", "w") as file:
        file["raw"] = np.random.default_rng(0).integers(0, 255, STACK).astype(np.uint8)
    return folder


def line(trained: Path, output: Path, *more: str) -> list[object]:
    words = ["--input", trained / "stack.h5", "--output", output, "--border", "mirror"]
    return ["predict", trained / "run", *words, "--block", "2,10,10", *more]


def refused(words: list[object], **limits: int) -> str:
    """The one line of a command's error."""

    def limit() -> None:
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, name), (value, value))

    code, _, said = apart(*words, before=limit)
    return error(code, said)


def error(code: int | None, said: str) -> str:
    """The one line of an error."""
    assert code == 1, said
    lines = [line for line in said.splitlines() if not line.startswith("predicting")]
    assert len(lines) == 1, said
    assert lines[0].startswith("znnpy: ")
    return lines[0]


def events(output: Path, name: str) -> list[dict[str, Any]]:
    """Lines of the log; only the last may be cut short."""
    lines = Path(f"{output}.log.jsonl").read_text().splitlines(keepends=True)
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [line for line in found if line["event"] == name]


def content(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def finishes(trained: Path, output: Path, *more: str) -> None:
    """The same command does the rest, and gives what an undisturbed one gives."""
    before = len(events(output, "block")) if Path(f"{output}.partial").exists() else 0
    znnpy(*line(trained, output, *more))
    blocks = STACK[0] // 2 * (STACK[1] // 10) * (STACK[2] // 10)
    assert before <= len(events(output, "block")) <= blocks + 4  # written but not yet told
    whole = trained / output.name
    if not whole.exists():
        znnpy(*line(trained, whole))
    assert content(output) == content(whole)
    assert not list(output.parent.glob("*.partial*"))


@pytest.mark.slow
def test_zarr_on_a_full_disk(trained: Path, small_disk: Path) -> None:
    output = small_disk / "out.zarr"
    assert "out.zarr cannot be written: No space left on device" in refused(line(trained, output))
    sized(small_disk, 8 * KIB, "remount")
    finishes(trained, output)
    assert events(output, "start")[1]["left"] < events(output, "start")[0]["left"]


@pytest.mark.slow
def test_hdf5_on_a_disk_without_room(trained: Path, small_disk: Path) -> None:
    output = small_disk / "out.h5"
    assert "no room on the disk" in refused(line(trained, output))
    assert not list(small_disk.iterdir())
    sized(small_disk, 8 * KIB, "remount")
    finishes(trained, output)


@pytest.mark.slow
def test_hdf5_with_room_for_data_but_not_for_what_is_noted(trained: Path, small_disk: Path) -> None:
    output, data = small_disk / "out.h5", 4 * int(np.prod(STACK)) // KIB
    sized(small_disk, data + 16 + 16, "remount")
    assert "out.h5 cannot be written: No space left" in refused(line(trained, output))
    sized(small_disk, 8 * KIB, "remount")
    finishes(trained, output)
    starts = events(output, "start")
    assert 0 < starts[1]["left"] < starts[0]["left"]


@pytest.mark.slow
def test_files_that_may_not_grow(trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.h5"
    assert "out.h5 cannot be written: File too large" in refused(
        line(trained, output), RLIMIT_FSIZE=64 * KIB
    )
    assert not list(tmp_path.iterdir())
    output = tmp_path / "out.zarr"
    assert "out.zarr cannot be written: File too large" in refused(
        line(trained, output), RLIMIT_FSIZE=8 * KIB
    )
    finishes(trained, output)
    starts = events(output, "start")
    assert 0 < starts[1]["left"] < starts[0]["left"]


def traced(injection: str, words: list[str]) -> list[str]:
    """A command some of whose calls to the system fail; skips where nothing can be traced."""
    calls = injection.partition(":")[0]
    # The filter has the kernel stop at these calls alone, not at all of them.
    strace = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", f"trace={calls}"]
    if not shutil.which("strace") or subprocess.run([*strace, "true"]).returncode:
        pytest.skip("strace is not there, or may not trace")
    return [*strace, "-e", f"inject={injection}", *words]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suffix", "injection"),
    [
        (".zarr", "fdatasync:error=EIO:when=9+"),
        (".h5", "rename,renameat,renameat2:error=EIO:when=2+"),  # to its place, when all is done
    ],
)
def test_calls_that_fail(trained: Path, tmp_path: Path, suffix: str, injection: str) -> None:
    output = tmp_path / f"out{suffix}"
    words = traced(injection, command(*line(trained, output)))
    done = subprocess.run(words, capture_output=True, text=True)
    found = error(done.returncode, done.stderr)
    assert f"out{suffix} cannot be written: Input/output error" in found
    finishes(trained, output)
    starts = events(output, "start")
    assert len(starts) == 1 or starts[1]["left"] < starts[0]["left"]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs distributed")
def test_workers_on_a_full_disk(trained: Path, small_disk: Path) -> None:
    output = small_disk / "out.zarr"
    done = znnpy(*line(trained, output, "--dask", "local:1"), code=1)
    found = error(done.returncode, done.stderr)
    assert "out.zarr cannot be written: No space left on device" in found
    sized(small_disk, 8 * KIB, "remount")
    finishes(trained, output)  # here: workers that go on are tests/infer/test_dask_workers.py's


@pytest.mark.slow
def test_training_on_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    znnpy("train", write_config(whole))
    sized(small_disk, 112, "remount")
    config, found = write_config(small_disk), []
    for size in range(112, 400, 24):  # full at the first checkpoint, at later ones, at the picture
        sized(small_disk, size, "remount")
        code, _, said = apart("train", config)
        if code == 0:
            break
        found.append(said.splitlines()[-1])
        assert code == 1
        assert "Traceback" not in said
        assert found[-1].startswith(("znnpy: cannot", f"znnpy: {small_disk}")), found[-1]
    assert len({line.partition(":")[2] for line in found}) >= 2, found
    assert state(small_disk / "run") == state(whole / "run")
    assert shutil.disk_usage(small_disk).total < 400 * KIB
