"""What `conv: auto` chooses beside direct, fft and spectral convolution everywhere: updates in turns.

    python scripts/bench_plan.py --first 0 --count 8
    python scripts/bench_plan.py --net 3x10 5x10 2d-11x20 --threads 2
    python scripts/bench_plan.py --net ten --forget

A ratio is auto's time by that of the fastest of the others: above 1.1 is too much. What estimates put
at more than `--hopeless` times the fastest is left out (-), and what has the very plan that auto chose is
not timed again (=). Layers are the three passes with bias and square loss, on one core by default.
With `--forget` layers are measured anew, not taken from wisdom; planning includes loading their kernels.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from peers.cases import Case, layer, network_case, ten_layers
from peers.ours import Znnpy
from peers.timing import alternate
from stopwatch import seconds

from znnpy.engine.autotune import planned
from znnpy.geometry import fit
from znnpy.plan import ConvShape, Method, Plan, wisdom
from znnpy.plan.choose import choose, estimated_seconds

METHODS = ("direct", "fft", "spectral")


def main() -> None:
    """Measure what the command line asks for, one line each."""
    options = _options()
    cases = [_net(name) for name in options.net] or list(sweep())
    if options.forget:
        folder = tempfile.mkdtemp()
        wisdom.path = lambda: Path(folder) / "wisdom.json"
    last = None if options.count is None else options.first + options.count
    print(" | ".join(("case", "planning s", "auto ms", *METHODS, "ratio", "plan")), flush=True)
    for case in cases[options.first : last]:
        print(" | ".join(measure(case, options)), flush=True)


def sweep() -> Iterator[Case]:
    """Layers of 1 to 80 images, with filters of all sorts."""
    for images, size in product((1, 4, 10, 24, 80), (1, 2, 3, 5, 7, 9)):
        yield layer(images, max(images, 8), size, 16 if images * size > 80 else 28)
    for extent, size in product((8, 48), (2, 3, 5)):
        yield layer(16, 16, size, extent)
    yield layer(16, 16, 3, 64)
    for sparsity, size in product((2, 4), (2, 3, 5)):
        yield layer(20, 20, size, 24, sparsity=sparsity)
    for images, size in product((1, 8, 40), (3, 11, 40)):
        yield layer(images, max(images, 4), (1, size, size), (1, 64, 64))
    yield layer(10, 10, (1, 3, 3), (16, 32, 32))
    yield layer(16, 3, 3, 24)
    yield layer(20, 20, 3, 16, stride=2)
    for images, size in product((4, 24), (3, 5)):
        yield layer(images, images, size, 20, batch=2)


def measure(case: Case, options: argparse.Namespace) -> list[str]:
    """Cells of one line of the table."""
    geometry = fit(case.network, case.output_shape)
    planning = seconds(planned, case.network, geometry, case.batch, "auto", None)
    auto = Znnpy(case, options.threads, "auto")
    plans = {method: _plan(case, method) for method in METHODS}
    chosen = Plan.from_record(auto.model.plan_record, case.network)
    same = [method for method in METHODS if _methods(plans[method]) == _methods(chosen)]
    others = {
        method: Znnpy(case, options.threads, method)
        for method in METHODS
        if method not in same and _hopeful(case, plans, method, options.hopeless)
    }
    rounds = alternate({"auto": auto, **others}, options.rounds)
    for contestant in (auto, *others.values()):
        contestant.close()
    least = {name: min(times) for name, times in rounds.seconds.items()}
    best = min(time for name, time in least.items() if name != "auto" or same)
    shown = {**dict.fromkeys(METHODS, "-"), **dict.fromkeys(same, "=")}
    shown |= {name: f"{time * 1e3:.2f}" for name, time in least.items()}
    times = [shown[name] for name in ("auto", *METHODS)]
    plan = "; ".join(" ".join(methods) for methods in _methods(chosen))
    return [case.name, f"{planning:.1f}", *times, f"{least['auto'] / best:.2f}", plan]


def _net(name: str) -> Case:
    return ten_layers() if name == "ten" else network_case(name)


def _plan(case: Case, conv: str) -> Plan:
    geometry = fit(case.network, case.output_shape)
    assert conv in METHODS
    return choose(case.network, geometry, case.batch, conv, lambda shape: {}, case.training)


def _methods(plan: Plan) -> list[list[str]]:
    """Names of the methods of each layer's passes, without spaces."""
    passes = ("forward", "gradient", "weight")
    layers = plan.layers.values()
    return [[str(layer.method(step)).replace(" ", ":") for step in passes] for layer in layers]


def _hopeful(case: Case, plans: dict[str, Plan], method: str, hopeless: float) -> bool:
    estimates = {name: _estimate(case, plan) for name, plan in plans.items()}
    return estimates[method] <= hopeless * min(estimates.values())


def _estimate(case: Case, plan: Plan) -> float:
    """Estimated seconds of an update's convolutions, where every pass of a layer has one method."""
    geometry = fit(case.network, case.output_shape)
    edges = [edge for edge in case.network.edges if edge.kind == "conv"]
    shapes = {e.name: ConvShape.of(e, case.network, geometry, case.batch) for e in edges}
    methods: dict[str, Method] = {name: it.method("forward") for name, it in plan.layers.items()}
    return sum(estimated_seconds(shapes[name], method) for name, method in methods.items())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", nargs="+", default=[], metavar="FILTERxWIDTH|ten")
    parser.add_argument("--first", type=int, default=0, help="number of the first case, from 0")
    parser.add_argument("--count", type=int, help="how many cases (default: all)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--forget", action="store_true", help="measure layers anew")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hopeless", type=float, default=4.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
