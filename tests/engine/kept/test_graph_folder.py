"""Files of the folder: whole, of this user alone, not too many, none that nobody uses."""

import os
import time

import pytest

from znnpy.engine.kept import folder


@pytest.fixture(autouse=True)
def graphs(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "home", lambda: tmp_path / "graphs")
    return tmp_path / "graphs"


def names(graphs):
    return sorted(path.name.partition(".")[0] for path in graphs.iterdir())


def test_a_file_is_found_by_its_key_and_the_sizes_that_it_begins_with(graphs):
    assert not folder.has("3-2")
    assert folder.content("3-2-aa") is None
    folder.keep("3-2-aa", b"words")
    assert folder.content("3-2-aa") == b"words"
    assert folder.content("3-2-ab") is None
    assert folder.has("3-2")
    assert not folder.has("3-2-aa")
    assert not folder.has("2")
    assert [path.stat().st_mode & 0o777 for path in (graphs, *graphs.iterdir())] == [0o700, 0o600]


@pytest.mark.parametrize("others", ["graphs", "graphs/a-b.graphs"])
def test_what_others_can_write_is_not_read(graphs, others):
    """Its words become addresses that kernels write to."""
    folder.keep("a-b", b"words")
    path = graphs.parent / others
    path.chmod(path.stat().st_mode | 0o022)
    assert folder.content("a-b") is None


def test_those_that_were_used_last_stay(graphs, monkeypatch):
    monkeypatch.setattr(folder, "MOST_BYTES", 30)
    for number, name in enumerate("abc"):
        folder.keep(name, b"x" * 10)
        os.utime(folder.place(name), (0, time.time() - 100 + number))
    assert names(graphs) == ["a", "b", "c"]
    folder.content("a")
    folder.keep("d", b"x" * 10)
    assert names(graphs) == ["a", "c", "d"]
    folder.keep("e", b"x" * 25)
    assert names(graphs) == ["e"]
    folder.keep("f", b"x" * 31)  # more than all together may be
    assert names(graphs) == ["e"]


def test_what_nobody_has_used_for_a_month_goes(graphs):
    for name in "ab":
        folder.keep(name, b"words")
    long_ago = time.time() - folder.UNUSED_SECONDS
    os.utime(folder.place("a"), (0, long_ago - 60))
    os.utime(folder.place("b"), (0, long_ago + 600))
    folder.keep("c", b"words")
    assert names(graphs) == ["b", "c"]


def test_what_cannot_be_written_whole_is_not_there(graphs, monkeypatch):
    folder.keep("a", b"words")

    def full(*_):
        raise OSError

    monkeypatch.setattr(folder.Path, "replace", full)
    with pytest.raises(OSError):  # noqa: PT011
        folder.keep("a", b"others")
    assert folder.content("a") == b"words"
    assert names(graphs) == ["a"]
