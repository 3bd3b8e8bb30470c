"""New files appear whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from typing import BinaryIO

import pytest

from znnpy import atomic_files
from znnpy.atomic_files import (
    beside,
    explained,
    final_name,
    replacing,
    write_text,
    write_texts,
    write_whole,
)
from znnpy.errors import RunError, ZnnpyError


def test_writes_and_leaves_nothing_beside(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "one")
    write_text(tmp_path / "a", "two")
    assert (tmp_path / "a").read_text() == "two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_names_that_are_no_text_are_escaped(tmp_path: Path) -> None:
    """As of files from a system of other letters: YAML in double quotes has them back."""
    write_text(tmp_path / "a", 'image: "\udce9.h5"')
    assert (tmp_path / "a").read_bytes() == b'image: "\\udce9.h5"'


@pytest.mark.parametrize("work", [KeyboardInterrupt, ValueError, OSError])
def test_an_error_removes_the_new_file_alone(tmp_path: Path, work: type[BaseException]) -> None:
    write_text(tmp_path / "a", "old")

    def fail(path: Path) -> None:
        with replacing(path) as new:
            new.write_text("new")
            raise work

    with pytest.raises(work):
        fail(tmp_path / "a")
    assert (tmp_path / "a").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_process_left_is_taken_over(tmp_path: Path) -> None:
    beside(tmp_path / "a").write_text("half of something longer")
    write_text(tmp_path / "a", "whole")
    assert (tmp_path / "a").read_text() == "whole"
    assert len(list(tmp_path.iterdir())) == 1


def test_it_takes_its_place_synced_and_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[str]()
    sync, replace = atomic_files.sync, Path.replace
    monkeypatch.setattr(atomic_files, "sync", lambda path: done.append(path.name) or sync(path))
    monkeypatch.setattr(Path, "replace", lambda a, b: done.append("moved") or replace(a, b))
    write_whole(tmp_path / "a", lambda file: file.write(b"new"))
    assert done == [".a.tmp", "moved", tmp_path.name]


def test_names_beside_are_known_again() -> None:
    assert final_name(beside(Path("runs/plan.json")).name) == "plan.json"
    assert [final_name(name) for name in ("plan.json", ".hidden", "a.tmp")] == [
        "plan.json",
        ".hidden",
        "a.tmp",
    ]


def test_full_disk_keeps_the_old_file_and_says_so(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")

    def fail(file: BinaryIO) -> None:
        file.write(b"new")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    words = r"cannot write .*a: the disk is full.*unharmed"
    with pytest.raises(RunError, match=words), explained(tmp_path / "a", RunError):
        write_whole(tmp_path / "a", fail)
    assert (tmp_path / "a").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_disk_that_takes_no_more_bytes(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(ZnnpyError, match=r"cannot write .*a: File too large.*unharmed"):
            write_text(tmp_path / "a", "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "a").read_text() == "old"


def test_of_several_files_all_or_none(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    write_texts({one: "old", other: "old"})
    assert (one.read_text(), other.read_text()) == ("old", "old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        for texts in ({one: "new", other: "x" * 100_000}, {other: "x" * 100_000, one: "new"}):
            with pytest.raises(ZnnpyError, match=r"cannot write .*b: File too large.*unharmed"):
                write_texts(texts)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (one.read_text(), other.read_text()) == ("old", "old")
    assert len(list(tmp_path.iterdir())) == 2


def test_missing_directory_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="No such file"):
        write_text(tmp_path / "missing" / "a", "", RunError)
