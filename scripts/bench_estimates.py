"""Estimated beside measured times of spectral layers for several tiles, on one core.

    python scripts/bench_estimates.py
    python scripts/bench_estimates.py 16,16,3,48,1 --tiles 8

A layer is INPUTS,OUTPUTS,FILTER,EXTENT,SPARSITY. Tiles are cubes and the best non-cubes by estimate, of up to
`--hopeless` times the least estimate. `chosen` is the tile of the least estimate; its time by that of the
fastest is what choosing by estimate loses. Times are all passes, in ms.
"""

from __future__ import annotations

import argparse
from statistics import geometric_mean

from peers.cases import layer

from znnpy.engine.timing import timed
from znnpy.geometry import fit
from znnpy.network.types import Triple
from znnpy.plan import ConvShape, Method
from znnpy.plan.algorithms.spectral import dense
from znnpy.plan.choose import estimated_seconds
from znnpy.plan.tiles import best_tiles
from znnpy.plan.types import TILE_SIZES

LAYERS = (
    "10,10,7,62,2",
    "10,10,7,36,4",
    "16,16,7,32,1",
    "10,10,5,40,2",
    "32,32,5,32,1",
    "64,64,5,24,1",
    "40,40,5,24,4",
    "10,10,3,40,2",
    "16,16,3,48,1",
    "32,32,3,48,1",
    "40,40,3,24,4",
    "80,80,3,32,1",
)


def main() -> None:
    """Measure what the command line asks for, a line for each layer."""
    options = _options()
    print(
        "| layer, outputs | chosen | estimated | measured | fastest | measured | all tiles: estimate / measured |"
    )
    print("|---|---|---|---|---|---|---|")
    for words in options.layers:
        print(line(words, options.tiles, options.hopeless), flush=True)


def line(words: str, tiles: int, hopeless: float) -> str:
    """One line of the table."""
    inputs, outputs, size, extent, sparsity = map(int, words.split(","))
    case = layer(inputs, outputs, size, extent, sparsity=sparsity)
    (edge,) = (edge for edge in case.network.edges if edge.kind == "conv")
    geometry = fit(case.network, case.output_shape)
    shape = ConvShape.of(edge, case.network, geometry, case.batch)
    methods = candidates(shape, tiles, hopeless)
    costs = timed(shape, methods)
    estimates = {method: estimated_seconds(shape, method) * 1e3 for method in methods}
    seconds = {method: sum(costs[method].values()) * 1e3 for method in methods}
    ratios = [estimates[method] / seconds[method] for method in methods]
    cells = [case.name.removesuffix(" out")]
    for method in (min(methods, key=estimates.__getitem__), min(methods, key=seconds.__getitem__)):
        cells += [str(method).removeprefix("spectral ")]
        cells += [f"{estimates[method]:.1f}"] if len(cells) == 2 else []
        cells += [f"{seconds[method]:.1f}"]
    cells += [
        f"{geometric_mean(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}, {len(ratios)} tiles)"
    ]
    return f"| {' | '.join(cells)} |"


def candidates(shape: ConvShape, count: int, hopeless: float) -> list[Method]:
    """Tiles worth a look."""
    cubes: list[Triple] = [(n, n, n) for n in TILE_SIZES if n > max(shape.size)]
    methods = [Method("spectral", tile) for tile in (*best_tiles(dense(shape), count), *cubes)]
    estimates = {method: estimated_seconds(shape, method) for method in dict.fromkeys(methods)}
    most = hopeless * min(estimates.values())
    return [method for method, seconds in estimates.items() if seconds <= most]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("layers", nargs="*", default=LAYERS, metavar="I,O,FILTER,EXTENT,SPARSITY")
    parser.add_argument("--tiles", type=int, default=4, help="best by estimate (default: 4)")
    parser.add_argument("--hopeless", type=float, default=2.5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
