"""What stands at an output's place, in words, and that the words hold."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from znnpy.cli.prediction_display import standing
from znnpy.data.writing.block_output import Finished, OutputSpec, open_output
from znnpy.data.writing.destination import Destination, journal_of
from znnpy.errors import VolumeError


def spec(**job: str) -> OutputSpec:
    return OutputSpec((1, 4, 4, 6), np.dtype("f4"), (4, 4, 2), job=job)


def block() -> np.ndarray:
    return np.zeros((1, 4, 4, 2), np.float32)


@pytest.mark.parametrize("name", ["out.h5", "out.zarr"])
def test_words_and_deeds_agree(tmp_path: Path, name: str) -> None:
    there = Destination(tmp_path / name, "p" if name == "out.h5" else "")
    anew = replace(there, overwrite=True)
    job, other = spec(net="a"), spec(net="b")
    assert "does not exist yet" in standing(there, job)
    with open_output(there, job) as output:
        output.write((0, 0, 2), block())
        assert "would go on, 1 of 3 blocks are written" in standing(there, job)
    assert "would go on, 1 of 3 blocks are written" in standing(anew, job)
    words = standing(there, other)
    assert "would be refused" in words
    assert 'net was "a", now "b"' in words
    with pytest.raises(VolumeError, match='net was "a", now "b"'):
        open_output(there, other)
    assert "would be begun anew" in standing(anew, other)
    with open_output(there, job) as output:
        assert len(output.done) == 1
        output.write((0, 0, 0), block())
        output.write((0, 0, 4), block())
        output.finish()
    assert "would be refused" in standing(there, job)
    with pytest.raises(VolumeError, match="exists already"):
        open_output(there, job)
    assert "would be replaced" in standing(anew, job)


def test_a_finished_output_that_was_not_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.h5"
    there = Destination(path, "p")
    with open_output(there, spec()) as output:
        for x in (0, 2, 4):
            output.write((0, 0, x), block())
        monkeypatch.setattr(type(output), "_move", lambda _: None)
        output.finish()
    monkeypatch.undo()
    assert journal_of(path).exists()
    assert "only be moved" in standing(there, spec())
    with pytest.raises(Finished):
        open_output(there, spec())
    assert path.exists()
