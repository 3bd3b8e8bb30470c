"""What stands at an output's place, in words, and that the words hold."""

from pathlib import Path

import numpy as np
import pytest

from znnpy.data.journaled import standing
from znnpy.data.outputs import Finished, OutputSpec, journal_of, open_output
from znnpy.errors import VolumeError


def spec(**job: str) -> OutputSpec:
    return OutputSpec((1, 4, 4, 6), np.dtype("f4"), (4, 4, 2), job=job)


def block() -> np.ndarray:
    return np.zeros((1, 4, 4, 2), np.float32)


@pytest.mark.parametrize("name", ["out.h5", "out.zarr"])
def test_words_and_deeds_agree(tmp_path: Path, name: str) -> None:
    path, dataset = tmp_path / name, "p" if name == "out.h5" else ""
    job, other = spec(net="a"), spec(net="b")
    assert "does not exist yet" in standing(path, dataset, job, False)
    with open_output(path, dataset, job) as output:
        output.write((0, 0, 2), block())
        assert "would go on, 1 of 3 blocks are written" in standing(path, dataset, job, False)
    assert "would go on, 1 of 3 blocks are written" in standing(path, dataset, job, True)
    words = standing(path, dataset, other, False)
    assert "would be refused" in words
    assert 'net was "a", now "b"' in words
    with pytest.raises(VolumeError, match='net was "a", now "b"'):
        open_output(path, dataset, other)
    assert "would be begun anew" in standing(path, dataset, other, True)
    with open_output(path, dataset, job) as output:
        assert len(output.done) == 1
        output.write((0, 0, 0), block())
        output.write((0, 0, 4), block())
        output.finish()
    assert "would be refused" in standing(path, dataset, job, False)
    with pytest.raises(VolumeError, match="exists already"):
        open_output(path, dataset, job)
    assert "would be replaced" in standing(path, dataset, job, True)


def test_a_finished_output_that_was_not_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.h5"
    with open_output(path, "p", spec()) as output:
        for x in (0, 2, 4):
            output.write((0, 0, x), block())
        monkeypatch.setattr(type(output), "_move", lambda _: None)
        output.finish()
    monkeypatch.undo()
    assert journal_of(path).exists()
    assert "only be moved" in standing(path, "p", spec(), False)
    with pytest.raises(Finished):
        open_output(path, "p", spec())
    assert path.exists()
