#!/usr/bin/env python3
"""Nets of other packages with random weights, taken over in four ways, beside PyTorch: a table in Markdown.

    scripts/nets_table.py [--only WORDS] [--after NET] > table.md

State dict and arguments of the class; ONNX by PyTorch's older exporter and by its newer one; `from_torch`. A number is
the largest difference of all outputs, float32, of the output's range; `step` the largest difference of a parameter
after an update by SGD in float64, of what that parameter moved. Classes whose package is not installed are retyped in
tests/peers. Needs pip install ".[peers,onnx]".
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "tests/peers"), str(ROOT / "tests")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from carried import shuffled, tamed  # noqa: E402
from class_nets import KNOWN, Known  # noqa: E402
from monai.networks import nets  # noqa: E402
from taken_nets import NETS, exported  # noqa: E402
from torch import nn  # noqa: E402

import znnpy  # noqa: E402
from znnpy import Hardware, Model, from_torch, load_network  # noqa: E402
from znnpy.errors import ZnnpyError  # noqa: E402
from znnpy.geometry import fit_input  # noqa: E402
from znnpy.interop.pytorch.module import described_module  # noqa: E402
from znnpy.interop.source import read_model  # noqa: E402

NEAR = 1e-4
ROUNDED = 2e-7  # what is compared after a step is read as float32
REAL = ("monai", "dynamic_network_architectures", "pytorch3dunet", "torchvision")
_SMALL = {"spatial_dims": 3, "in_channels": 1, "out_channels": 2}
MORE: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "BasicUNetPlusPlus": (
        lambda: nets.BasicUNetPlusPlus(**_SMALL, features=(4, 4, 8, 8, 8, 4)), (1, 32, 32, 32),
    ),
    "MedNeXt of MONAI": (
        lambda: nets.MedNeXt(init_filters=4, blocks_down=(1, 1, 1, 1), blocks_up=(1, 1, 1, 1), blocks_bottleneck=1),
        (1, 32, 32, 32),
    ),
    "MedNeXt of MONAI, responses": (
        lambda: nets.MedNeXt(
            init_filters=4, blocks_down=(1,) * 4, blocks_up=(1,) * 4, blocks_bottleneck=1, global_resp_norm=True
        ),
        (1, 32, 32, 32),
    ),
    "AutoEncoder": (lambda: nets.AutoEncoder(3, 1, 1, (4, 8), (2, 2)), (1, 16, 16, 16)),
    "QuickNAT": (lambda: nets.Quicknat(num_classes=3, num_channels=1, num_filters=8), (1, 32, 32)),
    "UNETR": (
        lambda: nets.UNETR(1, 2, (16, 16, 16), feature_size=4, hidden_size=12, mlp_dim=12, num_heads=2),
        (1, 16, 16, 16),
    ),
    "SwinUNETR": (lambda: nets.SwinUNETR(1, 2, feature_size=12), (1, 64, 64, 64)),
}  # fmt: skip


@dataclass
class Net:
    """A net, its image, and its entry among known classes."""

    module: nn.Module
    image: torch.Tensor
    known: Known | None = None

    @property
    def source(self) -> str:
        """The package that the module is of, or that it was retyped from."""
        first = type(self.module).__module__.split(".")[0]
        if first in REAL:
            return first
        return f"{self.known.name.split('.')[0]}, retyped" if self.known else "own"


def drawn(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> Net:
    """A net whose values no net starts with."""
    torch.manual_seed(0)
    module = make()
    shuffled(module, 1)
    tamed(module)
    image = np.random.default_rng(2).standard_normal((1, *shape))
    return Net(module.eval(), torch.from_numpy(image).float())


def real(name: str, known: Known) -> tuple[str, Known]:
    """A class as it is in its package, if that is installed; older forms of it are in none."""
    package, _, kind = known.name.partition(".")
    if package != "pytorch3dunet" or "older" in name:
        return name, known
    try:
        module = import_module("pytorch3dunet.unet3d.model")
    except ImportError:
        return name, known
    return name, replace(known, make=getattr(module, kind), arguments=known.written)


def all_nets() -> dict[str, Callable[[], Net]]:
    """Nets by name, made when they are asked for."""
    found: dict[str, Callable[[], Net]] = {
        name: (lambda known=known: Net(known.module(), known.image(), known))
        for name, known in map(real, KNOWN, KNOWN.values())
    }
    for name, (make, shape) in {**NETS, **MORE}.items():
        if name not in found and not name.startswith(("UNet", "SegResNet", "DynUNet")):
            found[name] = partial(drawn, make, shape)
    return found


def solid(array: Any) -> Any:
    """An array with z."""
    return array if array.ndim == 5 else array[:, :, None]


def outputs(net: Net) -> list[Any]:
    """What the module makes."""
    with torch.no_grad():
        found = net.module(net.image)
    return [solid(one.numpy()) for one in ([found] if torch.is_tensor(found) else found)]


def away(values: Any, wanted: list[Any]) -> float:
    """The largest difference, of the range; of a larger output its middle counts."""
    made = list(values.values()) if isinstance(values, dict) else [values]
    if len(made) != len(wanted):
        raise ZnnpyError(f"makes {len(made)} outputs of {len(wanted)}")
    worst = 0.0
    for array in wanted:
        found = []
        for ours in made:
            spare = [(a - b) // 2 for a, b in zip(ours.shape[2:], array.shape[2:], strict=True)]
            if min(spare) >= 0 and ours.shape[1] == array.shape[1]:
                inner = tuple(slice(n, n + m) for n, m in zip(spare, array.shape[2:], strict=True))
                found.append(float(np.abs(ours[(..., *inner)] - array).max() / np.ptp(array)))
        worst = max(worst, min(found, default=np.inf))
    return worst


def run(network: Any, parameters: Any, net: Net, loss: Any = "square") -> Any:
    """What the engine makes."""
    shapes = fit_input(network, solid(net.image.numpy()).shape[2:]).output_shapes
    with Model(network, shapes, threads=2, training=False, loss=loss) as model:
        model.set_parameters(parameters)
        return model.forward(solid(net.image.numpy()))


def by_state(net: Net, folder: Path) -> float:
    """By the class and its state dict."""
    if net.known is None:
        raise ZnnpyError("-")
    found = net.known.taken(net.module, folder)
    return away(run(found.network, found.parameters, net), outputs(net))


def by_onnx(net: Net, folder: Path, dynamo: bool) -> float:
    """By an ONNX file."""
    try:
        path = exported(net.module, net.image, folder / "net.onnx", dynamo)
    except Exception as error:
        raise ZnnpyError(f"the exporter fails: {type(error).__name__}") from error
    model = read_model(path)
    network, loss = load_network(model.config["network"]), model.config["training"]["loss"]
    return away(run(network, model.members["weights"](), net, loss), outputs(net))


def by_module(net: Net, folder: Path) -> float:
    """By `from_torch`."""
    with from_torch(net.module, net.image, threads=2, training=False) as model:
        return away(model.forward(solid(net.image.numpy())), outputs(net))


def by_step(net: Net, folder: Path) -> float:
    """By an update, of all parameters that learn."""
    module = net.module.double()
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
    image = net.image.double()
    with torch.no_grad():
        made = module(image)
    if not torch.is_tensor(made):
        raise ZnnpyError("several outputs")
    wanted = np.random.default_rng(3).random(tuple(made.shape))
    described = described_module(module, image)
    before = described.parameters
    if any("learn apart" in note for note in described.notes):
        raise ZnnpyError("one slope for several layers would be one for each")
    with from_torch(
        module, image, loss="square", hardware=Hardware(precision="float64"),
        optimizer=znnpy.Optimizer("sgd", momentum=0.0),
    ) as model:  # fmt: skip
        model.step(solid(image.numpy()), solid(wanted), learning_rate=0.1)
        module.train()
        found = module(image)  # in training some make outputs of other levels, too
        if not torch.is_tensor(found):
            found = found[0]
        finest = found if found.shape == made.shape else found[:, 0]
        loss = torch.nn.functional.mse_loss(finest, torch.from_numpy(wanted))
        loss.backward()
        torch.optim.SGD(module.parameters(), lr=0.1).step()
        after = described_module(module.eval(), image).parameters
        ours = model.parameters
        moved = {key: float(np.abs(after[key] - array).max()) for key, array in before.items()}
        most = max(moved.values())
        return max(
            float((np.abs(ours[key] - array) - ROUNDED * np.abs(array)).max(initial=0))
            / max(moved[key], 1e-3 * most, 1e-9)
            for key, array in after.items()
        )


WAYS: dict[str, Callable[[Net, Path], float]] = {
    "state dict": by_state,
    "ONNX": partial(by_onnx, dynamo=False),
    "ONNX, newer": partial(by_onnx, dynamo=True),
    "from_torch": by_module,
    "step": by_step,
}


def cell(way: Callable[[Net, Path], float], make: Callable[[], Net]) -> str:
    """A number, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = way(make(), Path(folder))
        except (ZnnpyError, RuntimeError, AttributeError, ValueError) as error:
            return " ".join(
                str(error).replace(f"{folder}/net.onnx: ", "").replace("|", "/").split()
            )[:110]
    return f"{found:.0e}" if found <= NEAR else f"**{found:.0e}**"


def main() -> None:
    """Print a row for each net."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--only", default="", help="nets whose names hold this")
    parser.add_argument("--after", default="", help="begin after the net of this name")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("| net | package |", " | ".join(WAYS), "|\n|---|---|", "---|" * len(WAYS), sep="")
    found = all_nets()
    names = list(found)[list(found).index(given.after) + 1 if given.after else 0 :]
    for name in names:
        make = found[name]
        if given.only.lower() not in name.lower():
            continue
        try:
            source = make().source
        except Exception as error:
            print(f"| {name} | not made: {type(error).__name__}: {str(error)[:80]} |", flush=True)
            continue
        cells = [cell(way, make) for way in WAYS.values()]
        print(f"| {name} | {source} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
