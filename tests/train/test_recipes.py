"""The recipes in `volumes/`: their networks fit their patches and volumes, and train."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from znnpy.config import load_config
from znnpy.geometry import fit
from znnpy.network import parameter_shapes
from znnpy.network.build import trained_network
from znnpy.train.progress import Quiet
from znnpy.train.session import train

VOLUMES = Path(__file__).parents[2] / "volumes"
RECIPES = sorted(path.name for path in VOLUMES.glob("*.yaml"))


def test_there_are_some() -> None:
    assert {"fibsem.yaml", "rsunet.yaml", "unet3d.yaml"} <= set(RECIPES)
    assert {"mnist_lenet.yaml", "cifar10_quick.yaml"} <= set(RECIPES)


@pytest.mark.parametrize(
    ("recipe", "sizes", "parameters"),
    [
        ("mnist_lenet.yaml", [28, 24, 12, 8, 4, 1, 1], 431_080),
        ("cifar10_quick.yaml", [32, 32, 16, 16, 8, 8, 4, 1, 1], 145_578),
    ],
)
def test_images_are_as_large_as_caffes(recipe: str, sizes: list[int], parameters: int) -> None:
    """Sizes of all blobs and the number of weights, as Caffe prints them."""
    config = load_config(VOLUMES / recipe)
    network = trained_network(config)
    geometry = fit(network, config.training.output_shape)
    shapes = [geometry.nodes[node.name].shape for node in network.nodes]
    assert shapes == [(1, size, size) for size in sizes]
    assert sum(prod(shape) for shape in parameter_shapes(network).values()) == parameters


@pytest.mark.parametrize("recipe", RECIPES)
def test_patches_lie_within_the_volumes(recipe: str) -> None:
    config = load_config(VOLUMES / recipe)
    geometry = fit(trained_network(config), config.training.output_shape)
    (shape,) = geometry.input_shapes.values()
    assert all(size <= whole for size, whole in zip(shape, (50, 100, 200), strict=True))


@pytest.mark.quick(1)
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
