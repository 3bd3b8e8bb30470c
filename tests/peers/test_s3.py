"""Predictions from and to s3 by s3fs, of moto's server on the loopback: as here, or one line that says why not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from called import status_of
from exported_runs import run_of

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

from znnpy.data.opening import open_volume  # noqa: E402
from znnpy.data.writing.folder_files import RemoteFiles  # noqa: E402

BUCKET = "bucket"
SETTINGS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_MAX_ATTEMPTS": "1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "no_proxy": "127.0.0.1",
}


@contextmanager
def served() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server of its own, and its process."""
    line = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = (re.search(r"http://127.0.0.1:\d+", text) for text in process.stderr)
            yield next(found[0] for found in said if found), process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with served() as (address, _):
        yield address


def connected(address: str, patch: pytest.MonkeyPatch) -> Any:
    """The file system of a server, with a bucket."""
    for name, value in {**SETTINGS, "AWS_ENDPOINT_URL": address}.items():
        patch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    system = s3fs.S3FileSystem()
    system.makedirs(BUCKET, exist_ok=True)
    return system


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """The command that predicts by a run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    run_of(Path("run"), {"layers": [{"conv": {"channels": 1, "size": 3}}]})
    array = np.random.default_rng(0).integers(0, 255, (9, 20, 30)).astype("u1")
    zarr.save("image.zarr", array)
    return ("predict", "run", "--block", "4,8,8", "--input")


def test_from_there_and_to_there(
    run: tuple[object, ...], server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that are not there, and ends of files, are asked for on the way."""
    system = connected(server, monkeypatch)
    system.put("image.zarr", f"{BUCKET}/in/image.zarr", recursive=True)
    assert status_of(*run, "image.zarr", "--output", "here.zarr") == 0
    with open_volume("here.zarr") as volume:
        wanted = volume.read_all()
    for suffix in ("zarr", "n5", "precomputed"):
        there = f"s3://{BUCKET}/out/p.{suffix}"
        assert status_of(*run, f"s3://{BUCKET}/in/image.zarr", "--output", there) == 0
        with open_volume(there) as volume:
            assert np.array_equal(volume.read_all(), wanted)
        assert status_of(*run, "image.zarr", "--output", there) == 1  # it exists
    assert {it.name for it in Path().iterdir()} <= {
        "image.zarr", "run", "here.zarr", "here.zarr.log.jsonl",
        *(it.name for it in Path().glob("p-*.log.jsonl")),
    }  # fmt: skip


def test_what_is_not_there(
    run: tuple[object, ...], server: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    connected(server, monkeypatch)
    for words, said in (
        ((f"s3://{BUCKET}/none.zarr", "--output", "p.h5"), "is no Zarr folder"),
        (("s3://nobody/image.zarr", "--output", "p.h5"), "is no Zarr folder"),
        (("image.zarr", "--output", "s3://nobody/p.zarr"), "there is no bucket 'nobody'"),
    ):
        assert status_of(*run, *words) == 1
        told = " ".join(capsys.readouterr().err.split())
        assert said in told
        assert "internal error" not in told
    assert not [*Path().glob("*.partial*"), *Path().glob("p.h5*")]


def test_without_credentials(
    run: tuple[object, ...], server: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    connected(server, monkeypatch)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    s3fs.S3FileSystem.clear_instance_cache()
    for words in (
        (f"s3://{BUCKET}/image.zarr", "--output", "p.h5"),
        ("image.zarr", "--output", f"s3://{BUCKET}/p.zarr"),
    ):
        assert status_of(*run, *words) == 1
        assert "credentials" in capsys.readouterr().err


def test_a_server_that_dies_in_the_middle(
    run: tuple[object, ...], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The same command goes on once it is back, though it has nothing any more of what was written."""
    assert status_of(*run, "image.zarr", "--output", "here.zarr") == 0
    put, count = RemoteFiles.put, 0
    there = f"s3://{BUCKET}/p.zarr"
    with served() as (address, process):
        connected(address, monkeypatch)

        def dying(files: RemoteFiles, name: str, data: bytes) -> None:
            nonlocal count
            count += 1
            if count == 4:
                process.kill()
                process.wait()
            put(files, name, data)

        monkeypatch.setattr(RemoteFiles, "put", dying)
        assert status_of(*run, "image.zarr", "--output", there) == 1
        told = " ".join(capsys.readouterr().err.split())
        assert f"{there}/" in told
        assert "cannot be written: " in told
        assert "internal error" not in told
    monkeypatch.setattr(RemoteFiles, "put", put)
    with served() as (address, _):
        connected(address, monkeypatch)
        assert status_of(*run, "image.zarr", "--output", there) == 0
        with open_volume(there) as far, open_volume("here.zarr") as own:
            assert np.array_equal(far.read_all(), own.read_all())
