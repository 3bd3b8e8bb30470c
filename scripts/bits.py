"""Digests of weights after some updates and of predictions, for fixed plans: what a change must keep.

    python scripts/bits.py [--updates 50] > before.txt      # then change the code, and again: diff
    python scripts/bits.py --updates 4 --threads 1 3 64 --policy fifo random       # exits with 1 where bits differ

Each line is a network, the algorithm of all its layers that take it (others run by direct
convolution), and two digests. Seeds, data and plans are fixed, so the lines differ only where the code
computes other bits: on the same CPU and versions they are what they were. Of several numbers of workers and policies
each is computed, and one line is written for those with the same bits.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from znnpy import Execution, Model, Optimizer, load_network
from znnpy.graph import POLICIES
from znnpy.network.types import Network

TILES: Mapping[str, list[int]] = {"spectral": [8, 16, 16], "packed": [8, 8, 8]}


def chain(*layers: Mapping[str, Any], images: int = 1) -> dict[str, Any]:
    """A network section."""
    return {"input": images, "layers": list(layers)}


def conv(images: int, size: Any = 3, function: str = "relu") -> dict[str, Any]:
    """A convolution layer."""
    return {"conv": {"channels": images, "size": size, "function": function}}


NETWORKS: Mapping[str, tuple[dict[str, Any], tuple[int, int, int], int, str]] = {
    "few images": (chain(conv(3), conv(5, [1, 3, 3], "tanh"), conv(2, 1, "linear")), (5, 9, 11), 2,
                   "binomial_cross_entropy"),
    "dense, wide": (chain(conv(17), conv(16), conv(33, 3, "leaky_relu"), conv(3, 1, "linear")),
                    (6, 10, 14), 1, "softmax"),
    "sparse, pooled": (chain(conv(10, 3, "elu"), {"max_filter": 2}, conv(12), {"max_filter": [1, 2, 2]},
                             conv(4, 3, "logistic")), (4, 7, 9), 1, "square"),
    "true strides": (chain(conv(8, 5), {"max_pool": {"size": 2, "stride": 2}}, {"dropout": 0.5},
                           conv(6, 3, "linear")), (3, 4, 6), 2, "square"),
}  # fmt: skip


def plans(network: Network) -> Iterator[tuple[str, dict[str, Any]]]:
    """Plans by name: one algorithm for every layer and pass that takes it."""
    inputs = {node.name for node in network.inputs}
    for name in ("direct", "fft", "spectral", "packed", "winograd"):
        record = {}
        for edge in network.edges:
            if edge.kind == "conv":
                takes = max(edge.stride) == 1
                if name == "winograd":
                    takes = edge.size == (3, 3, 3) and edge.source not in inputs
                record[edge.name] = layer(name if takes else "direct")
        yield name, record


def layer(name: str) -> dict[str, Any]:
    """A layer's record; `packed` is spectral with cubes of 8 points."""
    algorithm = "spectral" if name in TILES else name
    found: dict[str, Any] = {"reason": ""}
    for step in ("forward", "gradient", "weight"):
        found[step] = algorithm
        if name in TILES:
            found[f"{step}_tile"] = TILES[name]
    return found


def digests(
    name: str, plan: dict[str, Any], updates: int, threads: int, policy: Any
) -> tuple[str, str]:
    """Of weights after updates by SGD and by Adam, and of forward passes before and after."""
    section, output, batch, loss = NETWORKS[name]
    weights, values = hashlib.sha256(), hashlib.sha256()
    for optimizer in (Optimizer(momentum=0.9), Optimizer("adam")):
        with Model(section, output, batch, threads=threads, seed=7, loss=loss, optimizer=optimizer,
                   plan=plan, execution=Execution(policy=policy, steal_seed=threads)) as model:  # fmt: skip
            random = np.random.default_rng(1)
            images = model.network.outputs[0].channels
            x = random.random((batch, model.network.inputs[0].channels, *model.input_shape))
            drawn = random.random((batch, images, *output))
            target = drawn == drawn.max(axis=1, keepdims=True) if loss == "softmax" else drawn < 0.4
            values.update(np.asarray(model.forward(x.astype(np.float32))).tobytes())
            for _ in range(updates):
                model.step(x.astype(np.float32), target.astype(np.float32), learning_rate=0.003)
            for array in model.parameters.values():
                weights.update(array.tobytes())
            values.update(np.asarray(model.predict(x.astype(np.float32))).tobytes())
    return weights.hexdigest()[:16], values.hexdigest()[:16]


def main() -> int:
    """Print one line for each network and algorithm, more where bits differ; 0 if none do."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--policy", nargs="+", default=["critical-path"], choices=list(POLICIES))
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    chosen = parser.parse_args()
    ways, same = list(product(chosen.threads, chosen.policy)), True
    for name in chosen.networks:
        for algorithm, plan in plans(load_network(NETWORKS[name][0])):
            found = {digests(name, plan, chosen.updates, *way) for way in ways}
            same &= len(found) == 1
            for pair in sorted(found):
                print(f"{name:15} {algorithm:9}", *pair, flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
