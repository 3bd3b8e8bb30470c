"""Journals keep what was acknowledged, whatever a crash left behind it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from znnpy.data.writing import journal
from znnpy.data.writing.journal import Journal, Region, read_done, read_head
from znnpy.errors import VolumeError

HEAD = {"shape": [1, 2, 3, 4]}
REGIONS: list[Region] = [((z, 0, 0), (z + 1, 5, 7)) for z in range(4)]


def begun(path: Path, count: int = 2) -> Path:
    """A journal of some regions, left open by nobody."""
    made = Journal(path)
    made.begin(HEAD)
    for number, region in enumerate(REGIONS[:count]):
        made.add(region, number)
    made.close()
    return path


def reopened(path: Path) -> Journal:
    made = Journal(path)
    made.close()
    return made


@pytest.mark.parametrize("torn", [1, 27, journal._STEP - 1])
def test_what_follows_a_record_that_was_cut_short_is_kept(tmp_path: Path, torn: int) -> None:
    path = begun(tmp_path / "journal")
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(whole[-journal._STEP :][:torn])
    again = Journal(path)
    assert again.done == {REGIONS[0]: 0, REGIONS[1]: 1}
    again.add(REGIONS[2], 2)
    again.close()
    assert path.stat().st_size == len(whole) + journal._STEP
    assert reopened(path).done == {REGIONS[0]: 0, REGIONS[1]: 1, REGIONS[2]: 2}
    assert read_done(path) == (3, False)


def test_writes_that_stop_short_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:5]))
    begun(tmp_path / "journal", 3)
    found = reopened(tmp_path / "journal")
    assert (found.head, found.done) == (HEAD, {REGIONS[n]: n for n in range(3)})


def test_a_damaged_record_is_passed_over(tmp_path: Path) -> None:
    path = begun(tmp_path / "journal", 3)
    data = bytearray(path.read_bytes())
    data[-journal._STEP - 5] ^= 1
    path.write_bytes(data)
    assert reopened(path).done == {REGIONS[0]: 0, REGIONS[2]: 2}


def test_the_later_of_two_records_counts(tmp_path: Path) -> None:
    path = begun(tmp_path / "journal")
    again = Journal(path)
    again.add(REGIONS[0], 9)
    again.close()
    assert reopened(path).done[REGIONS[0]] == 9


def test_a_new_beginning_forgets_all(tmp_path: Path) -> None:
    path = begun(tmp_path / "journal", 4)
    again = Journal(path)
    again.begin({"shape": [9]})
    assert not again.done
    again.add(REGIONS[3], 3)
    again.complete()
    again.close()
    found = reopened(path)
    assert (found.head, found.done, found.completed) == ({"shape": [9]}, {REGIONS[3]: 3}, True)
    assert read_head(path) == {"shape": [9]}
    assert read_done(path) == (1, True)


def test_a_head_that_was_cut_short_is_none(tmp_path: Path) -> None:
    path = begun(tmp_path / "journal")
    path.write_bytes(b'{"shape": [1')
    assert reopened(path).head is None
    assert read_head(path) is None


def test_one_process_has_it_at_a_time(tmp_path: Path) -> None:
    first = Journal(tmp_path / "journal")
    with pytest.raises(VolumeError, match="another process is writing this output"):
        Journal(tmp_path / "journal")
    first.remove()
    assert not (tmp_path / "journal").exists()
