"""A recipe's first updates by znnpy and by PyTorch: the same losses, whatever the recipe has of norms and clipping."""

from __future__ import annotations

import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from znnpy.config import load_config
from znnpy.train.recipe_sections import Seen
from znnpy.train.recipes import RECIPES

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from peers import same_updates

SMALL = (
    "training.output_shape=[4, 16, 16]",
    "inference.window=[4, 16, 16]",
    "run.threads=1",
    "network.unet.widths=[4, 6, 8]",
)


@pytest.mark.parametrize("changed", [(), ("network.unet.norm=null", "training.clip_norm=0.5")])
def test_losses_are_those_of_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    with h5py.File("v.h5", "w") as file:
        file["raw"] = np.random.default_rng(0).integers(0, 255, (16, 40, 40)).astype(np.uint8)
        file["labels"] = np.kron(np.arange(1, 9).reshape(2, 2, 2), np.ones((8, 20, 20), np.uint8))
    seen = Seen("v.h5:raw", "v.h5:labels", (16, 40, 40))
    Path("c.yaml").write_text(RECIPES["membranes"].text(seen))
    config = load_config("c.yaml", [*SMALL, *changed])
    ours, theirs = same_updates.ours(config, 10), same_updates.theirs(config, 10)
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-4)
    assert len(ours.losses) == len(theirs.losses) == 10
    assert len(ours.clock) == len(theirs.clock)
    assert len(set(np.round(ours.losses, 4))) > 5
    text = same_updates.table(ours, theirs)
    assert "| 9 to 10 |" in text
    assert "updates for one of PyTorch" in text
