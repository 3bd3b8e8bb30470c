"""From a PyTorch net to a run, trained here, and back: the same net, and each update as PyTorch makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from called import status_of
from nnunet_model import folder_of
from nnunet_plans import Recipe
from random_networks import random_inputs

import znnpy
from znnpy.geometry import fit
from znnpy.interop.nnunet.recognition import recognised
from znnpy.interop.run import write_run
from znnpy.interop.source import read_model
from znnpy.reference.evaluate import forward
from znnpy.train.progress import Quiet
from znnpy.train.start import SavedRun, read_run

torch = pytest.importorskip("torch")
unets = pytest.importorskip("dynamic_network_architectures.architectures.unet")
nibabel = pytest.importorskip("nibabel")

UPDATES = 50
SIZE = (8, 16, 16)
NETS = {
    "plain": Recipe(patch=SIZE, widths=(4, 6), mirrored=None),
    "residual": Recipe(patch=SIZE, widths=(4, 6), residual=True, mirrored=None),
}
RULES: dict[str, Any] = {
    "sgd": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "adam": {"weight_decay": 0.01},
}


def net_of(recipe: Recipe) -> Any:
    """nnU-Net's class with weights of its own, in float64."""
    described = recipe.plans["configurations"]["base"]["architecture"]
    keys = dict(described["arch_kwargs"])
    for key in ("conv_op", "norm_op", "nonlin"):
        keys[key] = getattr(torch.nn, keys[key].rpartition(".")[2])
    made = getattr(unets, described["network_class_name"].rpartition(".")[2])
    torch.manual_seed(0)
    found = made(1, num_classes=3, deep_supervision=True, **keys)
    with torch.no_grad():
        for tensor in found.parameters():
            tensor += 0.2 * torch.rand(tensor.shape)
    return found.double()


def imported(recipe: Recipe, net: Any, folder: Path) -> SavedRun:
    """The run of that net."""

    def taken(state: dict[str, np.ndarray]) -> None:
        for name in state:
            state[name] = net.state_dict()[name].float().numpy()

    write_run(read_model(folder_of(recipe, folder / "model", change=taken)), folder / "first")
    net.load_state_dict({k: it.float() for k, it in net.state_dict().items()})  # as it was written
    return read_run(folder / "first", Quiet())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", NETS)
def test_three_updates_are_pytorchs(name: str, rule: str, tmp_path: Path) -> None:
    """In float64, all outputs in the loss; compared by the class's own names."""
    recipe, keys = NETS[name], RULES[rule]
    net = net_of(recipe)
    saved = imported(recipe, net, tmp_path)
    network, rng = saved.network, np.random.default_rng(1)
    geometry = fit(network, SIZE)
    made = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[rule]
    decay = keys["weight_decay"]
    groups = [
        {"params": [it for it in net.parameters() if (it.ndim > 1) == filters], "weight_decay": of}
        for filters, of in ((True, decay), (False, 0.0))
    ]
    theirs = made(groups, lr=0.01, **{k: v for k, v in keys.items() if k != "weight_decay"})
    hardware = znnpy.Hardware(precision="float64")
    with znnpy.Model(network, geometry.output_shapes, loss="square", threads=0, hardware=hardware,
                     optimizer={"kind": rule, **keys}) as model:  # fmt: skip
        model.set_parameters(saved.parameters)
        for _ in range(3):
            image = rng.standard_normal((1, 1, *SIZE))
            targets = {
                node.name: rng.random((1, 3, *geometry.output_shapes[node.name]))
                for node in network.outputs
            }
            given = targets if len(targets) > 1 else next(iter(targets.values()))
            ours = model.step(image, given, learning_rate=0.01)
            net.zero_grad()
            pairs = zip(net(torch.from_numpy(image)), targets.values(), strict=True)
            loss = sum(torch.nn.functional.mse_loss(out, torch.from_numpy(t)) for out, t in pairs)
            loss.backward()
            theirs.step()
            assert ours == pytest.approx(float(loss.detach()), rel=1e-9)
        found = model.to_state_dict()
    state = net.state_dict()
    assert found.keys() == state.keys()
    for key, array in found.items():
        # Biases that a norm takes away: Adam makes steps of what rounding leaves of their gradients.
        if not (key.endswith(".bias") and (".conv.bias" in key or "all_modules.0." in key)):
            np.testing.assert_allclose(array, state[key].numpy(), rtol=1e-7, atol=1e-9, err_msg=key)


def trained(folder: Path, *more: object) -> Path:
    """Fifty updates of the imported run, on a scan with labels; `more` words of the command."""
    rng = np.random.default_rng(2)
    image = rng.standard_normal((20, 20, 12)).astype(np.float32)
    labels = (image > 0.5).astype(np.uint8) + (image > 1.2)
    for name, array in (("image", image), ("labels", labels.astype(np.uint8))):
        nibabel.Nifti1Image(array, np.eye(4)).to_filename(folder / f"{name}.nii.gz")
    text = (folder / "first" / "config.yaml").read_text()
    for old, new in (
        ("train: []", f"train: [{{image: {folder}/image.nii.gz, labels: {folder}/labels.nii.gz}}]"),
        ("iterations: 250000", f"iterations: {UPDATES}\n  start_from: {folder / 'first'}"),
        (f"directory: {folder / 'first'}", f"directory: {folder / 'second'}"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "config.yaml").write_text(text)
    line = ("train", folder / "config.yaml", "--threads", 1, "--set", "training.conv=direct")
    assert status_of(*line, "--quiet", *more) == 0
    return folder / "second"


@pytest.mark.parametrize("name", NETS)
def test_there_and_back(name: str, tmp_path: Path) -> None:
    recipe = NETS[name]
    net = net_of(recipe)
    first = imported(recipe, net, tmp_path)
    run = trained(tmp_path)
    path = tmp_path / "back.pth"
    assert status_of("export", run, "--format", "state-dict", "--output", path) == 0
    before = {key: it.clone() for key, it in net.state_dict().items()}
    net.load_state_dict(torch.load(path, weights_only=True), strict=True)
    filters = [key for key, it in before.items() if it.ndim > 1]
    assert not any(torch.equal(net.state_dict()[key], before[key]) for key in filters)
    saved = read_run(run, Quiet())
    assert saved.checkpoint.iteration == UPDATES
    assert recognised(first.network) == recognised(saved.network)
    geometry = fit(saved.network, SIZE)
    image = random_inputs(saved.network, geometry, 0)
    with torch.no_grad():
        outputs = net.eval()(torch.from_numpy(image["input"]).double())
    exact = forward(saved.network, geometry, saved.parameters, image)
    with znnpy.Model(saved.network, geometry.output_shapes, loss=saved.config.training.loss,
                     training=False, threads=1, conv="direct") as model:  # fmt: skip
        model.set_parameters(saved.parameters)
        found: Any = model.forward(image["input"])
    for output, node in zip(outputs, saved.network.outputs, strict=True):
        wanted = output.numpy()
        np.testing.assert_allclose(exact[node.name], wanted, atol=1e-9 * np.ptp(wanted))
        ours = found[node.name] if isinstance(found, dict) else found
        np.testing.assert_allclose(ours, wanted, atol=1e-5 * np.ptp(wanted))


def test_frozen_layers_come_back_as_they_were(tmp_path: Path) -> None:
    """Fine-tuning of the decoder alone: every bit of the encoder."""
    net = net_of(NETS["plain"])
    imported(NETS["plain"], net, tmp_path)
    run = trained(tmp_path, "--set", 'training.freeze=["down*"]')
    path = tmp_path / "back.pth"
    assert status_of("export", run, "--format", "state-dict", "--output", path) == 0
    found, before = torch.load(path, weights_only=True), net.state_dict()
    assert found.keys() == before.keys()
    for key, tensor in found.items():
        same = torch.equal(tensor.double(), before[key])
        if "encoder." in key:
            assert same, key
        elif tensor.ndim > 1:
            assert not same, key
