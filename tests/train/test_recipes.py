"""The recipes in `volumes/`: their networks fit their patches and volumes, and train."""

from __future__ import annotations

from pathlib import Path

import pytest

from znnpy.config import load_config
from znnpy.geometry import fit
from znnpy.network.build import trained_network
from znnpy.train.progress import Quiet
from znnpy.train.session import train

VOLUMES = Path(__file__).parents[2] / "volumes"
RECIPES = sorted(path.name for path in VOLUMES.glob("*.yaml"))


def test_there_are_some() -> None:
    assert {"fibsem.yaml", "rsunet.yaml", "unet3d.yaml"} <= set(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_patches_lie_within_the_volumes(recipe: str) -> None:
    config = load_config(VOLUMES / recipe)
    geometry = fit(trained_network(config), config.training.output_shape)
    (shape,) = geometry.input_shapes.values()
    assert all(size <= whole for size, whole in zip(shape, (50, 100, 200), strict=True))


@pytest.mark.parametrize("recipe", ["rsunet.yaml", "unet3d.yaml"])
def test_unets_train(recipe: str, tmp_path: Path) -> None:
    settings = [
        f"run.directory={tmp_path}/run",
        "training.iterations=2",
        "training.output_shape=[8, 16, 16]",
        "training.conv=direct",
        "data.test=[]",
        "run.threads=2",
    ]
    assert train(load_config(VOLUMES / recipe, settings), reporter=Quiet()).finished
