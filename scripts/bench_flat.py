"""Three equal layers of flat filters with bias and relu: winograd beside direct, spectral tiles and PyTorch.

    python scripts/bench_flat.py
    python scripts/bench_flat.py "32 1x3x3 16x128x128" "64 1x3x3 1x256x256 4" --threads 2 --rounds 9

A layer is CHANNELS FILTER EXTENT [BATCH], its images padded to the same size; before the three a pointwise layer takes
one image to so many, behind them another one back. Outputs, losses and filter gradients are compared first. Then all
are timed in turns, updates and forward passes: the least ms over rounds of each, and ratios by winograd's. Of spectral
tiles the fastest of the three best by estimate counts; of PyTorch, where it is installed, the faster of its formats
(conv2d where images are flat).
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from stopwatch import seconds

from znnpy import Model
from znnpy.geometry import fit
from znnpy.network.types import Edge, Network, Node, Triple
from znnpy.plan import ALGORITHMS, PASSES, ConvShape, Method

LAYERS = (
    "32 1x3x3 16x128x128",
    "64 1x3x3 16x64x64",
    "128 1x3x3 16x64x64",
    "32 1x3x3 1x256x256",
    "64 1x3x3 1x256x256",
    "128 1x3x3 1x256x256",
    "48 3x1x1 32x32x32",
)
TILES = 3  # of spectral, the best by estimate
PAUSE = 0.02  # PyTorch's threads spin for some milliseconds after their last work
INNER = ("c1", "c2", "c3")


class Layers:
    """What three layers are, with data of theirs."""

    def __init__(self, words: str) -> None:
        channels, size, extent, *batch = words.split()
        self.channels, self.size, self.extent = int(channels), triple(size), triple(extent)
        self.batch = int(batch[0]) if batch else 1
        rng = np.random.default_rng(0)
        drawn = rng.standard_normal((2, self.batch, 1, *self.extent))
        self.source, self.target = drawn.astype(np.float32)

    @property
    def network(self) -> Network:
        """The pointwise layers and the three between them."""
        z, y, x = ((taps // 2, taps // 2) for taps in self.size)
        names = ["a", "b", "c", "d"]
        nodes = [Node(name, "transfer", self.channels, "relu") for name in names]
        inner = [
            Edge(name, "conv", *ends, size=self.size, padding=(z, y, x))
            for name, *ends in zip(INNER, names, names[1:], strict=False)
        ]
        return Network(
            (Node("input", "input", 1), *nodes, Node("out", "transfer", 1, "linear")),
            (Edge("first", "conv", "input", "a"), *inner, Edge("last", "conv", "d", "out")),
        )

    def methods(self, training: bool) -> list[Method]:
        """The ways of the three layers."""
        network = self.network
        geometry, edge = fit(network, self.extent), network.edges[2]
        shape = ConvShape.of(edge, network, geometry, self.batch, training)
        tiles = ALGORITHMS["spectral"].told(shape)[:TILES]
        return [Method("winograd"), Method("direct"), *tiles]


def triple(word: str) -> Triple:
    """Sizes of the axes."""
    z, y, x = map(int, word.split("x"))
    return z, y, x


def plan(method: Method) -> dict[str, dict[str, Any]]:
    """The three layers by a method, the others directly."""
    record: dict[str, Any] = dict.fromkeys(PASSES, method.algorithm) | {"reason": ""}
    if method.tile:
        record |= {f"{which}_tile": list(method.tile) for which in PASSES}
    direct = dict.fromkeys(PASSES, "direct") | {"reason": ""}
    return dict.fromkeys(INNER, record) | dict.fromkeys(("first", "last"), direct)


def peers(layers: Layers, parameters: Mapping[str, Any], training: bool) -> dict[str, Any]:
    """PyTorch's updates or forward passes by format, and their outputs."""
    import torch

    flat = layers.size[0] == layers.extent[0] == 1
    conv: Any = torch.nn.Conv2d if flat else torch.nn.Conv3d
    formats: dict[str, Any] = {"planar": torch.contiguous_format}
    formats["channels last"] = torch.channels_last if flat else torch.channels_last_3d

    def layer(edge: str, node: str) -> Any:
        filters = torch.tensor(np.asarray(parameters[edge]))
        filters = filters[:, :, 0] if flat else filters
        outputs, inputs, *size = filters.shape
        made = conv(inputs, outputs, size, padding=[taps // 2 for taps in size])
        made.weight.data.copy_(filters)
        made.bias.data.copy_(torch.tensor(np.asarray(parameters[node])))
        return made

    def runs(kind: Any) -> Callable[[], Any]:
        inner = [
            (layer(*names), torch.nn.ReLU())
            for names in zip(("first", *INNER), "abcd", strict=True)
        ]
        net: Any = torch.nn.Sequential(*(it for pair in inner for it in pair), layer("last", "out"))
        net = net.to(memory_format=kind)
        x, target = (
            torch.tensor(array[:, :, 0] if flat else array).to(memory_format=kind)
            for array in (layers.source, layers.target)
        )
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-9)

        def update() -> None:
            optimizer.zero_grad()
            (0.5 * ((net(x) - target) ** 2).sum()).backward()
            optimizer.step()

        def forward() -> Any:
            with torch.no_grad():
                return net(x).numpy()

        return update if training else forward

    return {name: runs(kind) for name, kind in formats.items()}


def compare(layers: Layers, models: Mapping[str, Model], found: Mapping[str, Any]) -> None:
    """Outputs, and in training losses and gradients of filters, of all; SystemExit if they differ."""
    first = next(iter(models))
    for name, model in models.items():
        apart(name, model.forward(layers.source), models[first].forward(layers.source), 2e-5)
    if found:
        for name, run in found.items():
            wanted = run().reshape(layers.source.shape)
            apart(f"PyTorch, {name}", models[first].forward(layers.source), wanted, 2e-5)
        return
    wanted = models["direct"].loss_and_gradients(layers.source, layers.target)[1]
    for name, model in models.items():
        gradients = model.loss_and_gradients(layers.source, layers.target)[1]
        for edge in INNER:
            # A sum so near 0 that rounding decides where a relu bends moves a gradient by so much.
            apart(f"{name}, {edge}", gradients[edge], wanted[edge], 1e-3)


def apart(what: str, found: Any, wanted: Any, most: float) -> None:
    """SystemExit where arrays are further apart than that, relative."""
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    if not error <= most:
        raise SystemExit(f"{what}: {error:.1e} apart")


def measure(words: str, options: argparse.Namespace, training: bool) -> str:
    """One line of the table."""
    layers, runs = Layers(words), dict[str, Callable[[], Any]]()
    models = {
        str(method): Model(layers.network, layers.extent, layers.batch, threads=options.threads, seed=1,
                           loss="square", plan=plan(method), training=training)
        for method in layers.methods(training)
    }  # fmt: skip
    for name, model in models.items():

        def step(it: Model = model) -> None:
            it.step(layers.source, layers.target, learning_rate=1e-9)
            it.drain()  # `step` returns when the loss is known

        forward = lambda it=model: it.forward(layers.source)  # noqa: E731
        runs[name] = step if training else forward
    with_peers = importlib.util.find_spec("torch") is not None
    found = peers(layers, models["direct"].parameters, training) if with_peers else {}
    compare(layers, models, {} if training else found)
    times = alternate(
        runs | {f"PyTorch, {name}": run for name, run in found.items()}, options.rounds
    )
    for model in models.values():
        model.close()
    return _line(words, "update" if training else "forward", times)


def alternate(runs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least ms of each, taken in turns."""
    least = dict.fromkeys(runs, np.inf)
    for _ in range(rounds + 1):
        for name, run in runs.items():
            time.sleep(PAUSE)
            least[name] = min(least[name], 1e3 * seconds(run))
    return least


def _line(words: str, what: str, times: Mapping[str, float]) -> str:
    own, cells = times["winograd"], [words, what, f"{times['winograd']:.1f}"]
    for kind in ("direct", "spectral", "PyTorch"):
        some = {name: ms for name, ms in times.items() if name.startswith(kind)}
        if some:
            best = min(some, key=some.__getitem__)
            more = best.removeprefix(kind).strip(", ")
            cells.append(f"{some[best]:.1f} ({some[best] / own:.2f}) {more}".strip())
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """A line for each three layers, of updates and of forward passes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("layers", nargs="*", metavar="LAYERS")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(options.threads)
        torch.set_flush_denormal(True)
    print("| layers | | winograd ms | direct | spectral | PyTorch |\n|---|---|---|---|---|---|")
    for words in options.layers or LAYERS:
        for training in (True, False):
            print(measure(words, options, training), flush=True)


if __name__ == "__main__":
    main()
