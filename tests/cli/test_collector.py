"""The collector of cyclic garbage waits while a command loads its modules, and at no other time."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from znnpy.cli.loading import loading

# What the collector does after the package was imported by others, and after a command.
WATCHED = """
import gc, sys
import znnpy.dataset_path
states = [gc.isenabled(), gc.get_freeze_count()]
from znnpy.cli import main
try:
    main(["--version"])
except SystemExit:
    print(*states, gc.isenabled(), gc.get_freeze_count() > 0)
"""


@pytest.fixture
def collecting() -> Iterator[None]:
    before = gc.isenabled()
    gc.enable()
    yield
    if not before:
        gc.disable()


@pytest.mark.usefixtures("collecting")
def test_it_waits_while_modules_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loaded_by_a_test.py").write_text("import gc\nseen = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = gc.get_freeze_count()
    with loading():
        import loaded_by_a_test  # type: ignore[import-not-found]
    assert not loaded_by_a_test.seen
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    assert frozen > before
    kept = [[] for _ in range(100)]  # type: ignore[var-annotated]
    with loading():  # loads nothing: what a process has made since stays in sight
        import loaded_by_a_test
    assert gc.get_freeze_count() == frozen
    assert len(kept) == 100


@pytest.mark.usefixtures("collecting")
def test_it_is_as_it_was_after_errors_and_where_it_was_off() -> None:
    with pytest.raises(ImportError), loading():
        import there_is_no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()
    gc.disable()
    with loading():
        pass
    assert not gc.isenabled()


def test_only_commands_touch_it() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "True 0 True True", done.stderr
