"""A volume that changes while it is predicted or evaluated: no block of what it holds then is done."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from changes import CHANGES, FORMS
from jobs import EXTENT, small

from znnpy.data.opening import open_volume
from znnpy.data.scene import Scene
from znnpy.data.writing.destination import Destination
from znnpy.errors import ChangedError
from znnpy.infer.block_writer import Done, run_job
from znnpy.infer.config_model import prediction_of

BLOCK = (3, 5, 6)
RAW = np.random.default_rng(0).integers(0, 255, EXTENT).astype(np.uint8)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """What is predicted of a volume that does not change."""
    return small(tmp_path_factory.mktemp("whole"), threads=1).run("whole.h5", block=BLOCK)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", CHANGES)
def test_blocks_after_a_change_are_not_done(
    tmp_path: Path, whole: np.ndarray, form: str, change: str
) -> None:
    tiny, (name, write) = small(tmp_path, threads=1), FORMS[form]
    write(tmp_path / name, RAW)
    blocks = []

    def show(done: Done) -> None:
        if not blocks:
            CHANGES[change](tmp_path / name)
        blocks.append(done.blocks)

    with open_volume(tmp_path / name) as volume:
        job = tiny.job(Scene({"input": volume}, {}), block=BLOCK, sources={})
        with pytest.raises(ChangedError, match="has changed while it was read") as caught:
            run_job(job, Destination(tmp_path / "out.h5", "p"), show=show)
    assert "--overwrite" in str(caught.value)
    assert not (tmp_path / "out.h5").exists()
    assert len(blocks) < len(job.order) / 2
    with h5py.File(tmp_path / "out.h5.partial") as file:
        found = file["p"][...]
    for block in job.order[: len(blocks)]:
        part = (slice(None), *block.slices())
        assert np.array_equal(found[part], whole[part])


def test_what_is_kept_in_memory_is_not_given_back(tmp_path: Path) -> None:
    """As evaluation and the end of training predict."""
    tiny = small(tmp_path, threads=1)
    with tiny.scene().reference as volume:
        scene = Scene({"input": volume}, {})
        with prediction_of(tiny.weights, scene, patch=(4, 5, 6)) as prediction:
            changed = []

            def progress(*_: int) -> None:
                if not changed:
                    CHANGES["cut"](tmp_path / "raw.h5")
                changed.append(True)

            with pytest.raises(ChangedError, match=r"raw\.h5 has changed"):
                prediction.whole(progress)
    assert len(changed) == 1
