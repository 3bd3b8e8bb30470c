"""Folders that a group may write: the user's own, or one with others in it."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest
from znnpy_kernels.machine import private_files

USER = pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.parametrize(
    ("name", "members", "refused"),
    [
        (USER, [], False),  # a group for each user, umask 002
        (USER, [USER], False),
        (USER, ["somebody"], True),
        ("staff", [], True),  # others may have it as their first group
        (None, [], True),
    ],
)
def test_a_group_may_write_if_it_is_this_user(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
    members: list[str],
    refused: bool,
) -> None:
    def group(number: int) -> SimpleNamespace:
        if name is None:
            raise KeyError(number)
        return SimpleNamespace(gr_name=name, gr_mem=members)

    monkeypatch.setattr(grp, "getgrgid", group)
    folder = tmp_path / "kept"
    folder.mkdir()
    folder.chmod(0o775)
    assert bool(private_files.why_not(folder)) is refused
    assert private_files.shared(folder) is refused
    assert private_files.others_write(folder.stat()) is refused


def test_what_anybody_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o702)
    assert "others can write" in private_files.why_not(tmp_path)
