"""Files of exported runs: what is written, and what is refused before anything is."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from nnunet_model import folder_of
from nnunet_plans import Recipe

from znnpy.errors import ExportError
from znnpy.interop.export.formats import FORMATS, export
from znnpy.interop.export.trained import Trained
from znnpy.interop.run import write_run
from znnpy.interop.source import read_model
from znnpy.train.progress import Quiet
from znnpy.train.start import read_run

SMALL = Recipe(patch=(8, 16, 16), widths=(4, 6), folds=(0, 1))


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trained:
    monkeypatch.chdir(tmp_path)
    write_run(read_model(folder_of(SMALL, tmp_path / "model")), tmp_path / "run")
    return Trained(read_run(tmp_path / "run", Quiet()))


def entries() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written(trained: Trained, name: str) -> None:
    before = entries()
    found = export(trained, name, None)
    wanted = [f"run{suffix}" for suffix in FORMATS[name].suffixes]
    assert [str(path) for path in found] == wanted
    assert entries() == sorted([*before, *wanted])
    with pytest.raises(ExportError, match=f"{wanted[0]} exists already; name another"):
        export(trained, name, None)
    first = found[0].read_bytes()
    assert export(trained, name, found[0], overwrite=True) == found
    assert found[0].read_bytes() == first


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_refused(trained: Trained, name: str) -> None:
    before = entries()
    suffix = FORMATS[name].suffixes[0]
    with pytest.raises(
        ExportError, match=rf"a\.txt: the name of a file of format {name} ends in {suffix}"
    ):
        export(trained, name, Path("a.txt"))
    with pytest.raises(ExportError, match=r"cannot write .*: No such file or directory"):
        export(trained, name, Path(f"nowhere/a{suffix}"))
    assert entries() == before
    Path(f"a{suffix}").mkdir()
    with pytest.raises(ExportError, match="is a folder"):
        export(trained, name, Path(f"a{suffix}"), overwrite=True)


def test_weights_in_the_way_are_kept(trained: Trained) -> None:
    Path("net.pth").write_text("mine")
    with pytest.raises(ExportError, match=r"net\.pth exists already"):
        export(trained, "torch", Path("net.py"))
    assert Path("net.pth").read_text() == "mine"


@pytest.mark.parametrize("name", FORMATS)
def test_a_disk_that_takes_no_more(trained: Trained, name: str) -> None:
    # First without a limit, which would hit what is imported and measured, too.
    export(trained, name, None)
    before, limits = entries(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    try:
        with pytest.raises(ExportError, match="cannot write run"):
            export(trained, name, None, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert entries() == before


def test_an_unknown_format(trained: Trained) -> None:
    with pytest.raises(ExportError, match="'tensorrt' is no format; there are torch"):
        export(trained, "tensorrt", None)


def test_what_the_file_does_not_do_is_noted(trained: Trained) -> None:
    notes = " ".join(trained.notes())
    assert "scans turned, cropped, normalised and resampled" in notes
    assert "of the run's 2 members" in notes
    assert "of the run's 2 members" in " ".join(trained.notes(weights_alone=True))
    assert "mirror images" in notes
