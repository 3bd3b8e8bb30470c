import errno
import os
import resource

import pytest

from znnpy.errors import RunError
from znnpy.train.atomic import write_atomically, write_text


def test_writes_and_leaves_nothing_beside(tmp_path):
    write_text(tmp_path / "a", "one")
    write_text(tmp_path / "a", "two")
    assert (tmp_path / "a").read_text() == "two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_full_disk_keeps_the_old_file_and_says_so(tmp_path):
    write_text(tmp_path / "a", "old")

    def fail(file):
        file.write(b"new")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(RunError, match=r"disk is full.*unharmed"):
        write_atomically(tmp_path / "a", fail)
    assert (tmp_path / "a").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_disk_that_takes_no_more_bytes(tmp_path):
    write_text(tmp_path / "a", "old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(RunError, match=r"cannot write .*a: File too large.*unharmed"):
            write_text(tmp_path / "a", "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "a").read_text() == "old"


def test_missing_directory_is_a_clear_error(tmp_path):
    with pytest.raises(RunError, match="No such file"):
        write_text(tmp_path / "missing" / "a", "")
