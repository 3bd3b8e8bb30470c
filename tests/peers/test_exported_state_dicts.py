"""State dicts and safetensors that `znnpy export` writes, loaded by PyTorch into the classes that they came from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnunet_model import folder_of
from nnunet_plans import Recipe
from random_networks import random_inputs

import znnpy
from znnpy.geometry import fit
from znnpy.interop.described import Described
from znnpy.interop.export.formats import export
from znnpy.interop.export.state_dict import state_dict
from znnpy.interop.export.trained import Trained
from znnpy.interop.nnunet.plans import Plans
from znnpy.interop.run import write_run
from znnpy.interop.source import read_model
from znnpy.network import initial_parameters, load_network
from znnpy.reference.evaluate import forward
from znnpy.train.progress import Quiet
from znnpy.train.start import read_run

torch = pytest.importorskip("torch")
unets = pytest.importorskip("dynamic_network_architectures.architectures.unet")

FLAT: Any = {"patch": (24, 32), "spacing": (1.0, 2.0), "mirrored": (1,)}
BATCH = {"norm_op": "torch.nn.modules.batchnorm.BatchNorm3d", "norm_op_kwargs": {}}
RECIPES = {
    "plain": (Recipe(), {}),
    "residual": (Recipe(residual=True, widths=(4, 6, 8, 10)), {}),
    "flat": (Recipe(**FLAT), {}),
    "flat, residual": (Recipe(residual=True, **FLAT), {}),
    "batch norm": (Recipe(widths=(4, 6)), BATCH),
    "no bias": (Recipe(widths=(4, 6)), {"conv_bias": False}),
}


def class_of(recipe: Recipe, plans: dict[str, Any], heads: int) -> Any:
    """nnU-Net's own net, with other weights."""
    described = Plans.of(Described(plans, "plans"), "small").architecture().values
    keys = dict(described["arch_kwargs"])
    for key in ("conv_op", "norm_op", "nonlin"):
        keys[key] = getattr(torch.nn, keys[key].rpartition(".")[2])
    made = getattr(unets, described["network_class_name"].rpartition(".")[2])
    torch.manual_seed(5)
    return (
        made(len(recipe.schemes), num_classes=heads, deep_supervision=True, **keys).double().eval()
    )


@pytest.mark.parametrize("name", RECIPES)
def test_they_load_into_their_class(name: str, tmp_path: Path) -> None:
    recipe, changed = RECIPES[name]
    plans = recipe.plans
    plans["configurations"]["base"]["architecture"]["arch_kwargs"] |= changed

    def without_bias(state: dict[str, np.ndarray]) -> None:
        rng = np.random.default_rng(0)
        for key in [*state]:
            if "conv_bias" in changed and key.endswith(("conv.bias", "transpconvs.0.bias")):
                del state[key]
            elif changed is BATCH and key.endswith("norm.weight"):
                unit, like = key.removesuffix("weight"), state[key]
                state[f"{unit}running_mean"] = rng.standard_normal(like.shape).astype("f4")
                state[f"{unit}running_var"] = rng.random(like.shape).astype("f4") + 0.5

    folder = folder_of(recipe, tmp_path / "model", plans=plans, change=without_bias)
    write_run(read_model(folder), tmp_path / "run")
    trained = Trained(read_run(tmp_path / "run", Quiet()))
    heads = len(recipe.labels)
    weights, network = trained.saved.parameters, trained.saved.network
    geometry = fit(network, recipe.patch if len(recipe.patch) == 3 else (1, *recipe.patch))
    image = random_inputs(network, geometry, 0)
    wanted = forward(network, geometry, weights, image)
    given = torch.from_numpy(image["input"]).double()
    given = given[:, :, 0] if recipe.flat else given

    def same(net: Any) -> None:
        with torch.no_grad():
            outputs = net(given)
        for output, node in zip(outputs, ("output", "output1", "output2"), strict=False):
            found = output.numpy()[:, :, None] if recipe.flat else output.numpy()
            np.testing.assert_allclose(found, wanted[node], atol=1e-9)

    net = class_of(recipe, plans, heads)
    (path,) = export(trained, "state-dict", tmp_path / "net.pth")
    state = torch.load(path, weights_only=True)
    distinct = {it.data_ptr() for name, it in state.items() if "tracked" not in name}
    assert len(distinct) == len(weights)  # what has several names is stored once
    net.load_state_dict(state, strict=True)
    same(net)
    library = pytest.importorskip("safetensors.torch")
    (path,) = export(trained, "safetensors", tmp_path / "net.safetensors")
    kept = library.load_file(path)
    assert kept.keys() <= state.keys()
    assert not any("all_modules" in key or "decoder.encoder" in key for key in kept)
    net = class_of(recipe, plans, heads)
    if changed is BATCH:  # the library takes counters of norms with several names for unexpected
        assert not net.load_state_dict(kept, strict=False).unexpected_keys
    else:
        library.load_model(net, path, strict=True)
    same(net)
    with znnpy.Model(network, geometry.output_shapes, loss=trained.saved.config.training.loss, training=False,
                     threads=1, conv="direct") as model:  # fmt: skip
        model.set_parameters(weights)
        state = {key: torch.from_numpy(it) for key, it in model.to_state_dict().items()}
    net = class_of(recipe, plans, heads)
    net.load_state_dict(state, strict=True)
    same(net)


@pytest.mark.parametrize("slope", [0.01, 0.02])
def test_a_net_that_is_nearly_one_has_names_of_its_own(slope: float) -> None:
    """A net from scratch that is nnU-Net's has its names; where a single slope is another it has not."""
    keys = {"widths": [4, 6], "pool": "strided", "norm": "instance", "function": "leaky_relu"}
    network = load_network({"unet": keys})
    nodes = [
        replace(node, slope=slope) if node.name == "up0.layer2" else node for node in network.nodes
    ]
    network = replace(network, nodes=tuple(nodes))
    found = state_dict(network, initial_parameters(network, 0))
    assert any(name.startswith("encoder.") for name in found) == (slope == 0.01)


def test_a_state_dict_loads_into_the_module(tmp_path: Path) -> None:
    recipe = replace(Recipe(), widths=(4, 6))
    write_run(read_model(folder_of(recipe, tmp_path / "model")), tmp_path / "run")
    trained = Trained(read_run(tmp_path / "run", Quiet()))
    export(trained, "torch", tmp_path / "net.py")
    found = torch.load(tmp_path / "net.pth", weights_only=True)
    assert type(found).__name__ == "OrderedDict"
    assert all(it.dtype == torch.float32 for it in found.values())
