"""Strided and transposed convolutions, direct beside spectral: times by pass, and what `conv: auto` takes.

    python scripts/bench_strided.py
    python scripts/bench_strided.py "conv 32 32 5 2 24" "transposed 64 32 1x4x4 1x2x2 1x48x48"

A layer is KIND INPUTS OUTPUTS FILTER STRIDE EXTENT: sizes of an axis or of all three, the extent that of its smaller
images, padding half of what filters reach beyond the stride. Methods are timed in turns, task by task, on one core,
the least of several looks (`engine.timing`). Times in ms: forward, data gradient, weight gradient, the spectral
ones by the tile of which all passes cost least, with what passes share in the first of them. With `--input` the
source is an input, so that there is no data gradient.
"""

from __future__ import annotations

import argparse

from znnpy.engine.timing import timed
from znnpy.network.types import Triple
from znnpy.plan import ALGORITHMS, PASSES, ConvShape, Costs, Method, PassName, candidates
from znnpy.plan.joint_choice import cheapest, needed, shared_total

LAYERS = (
    "conv 16 16 5 2 32",
    "conv 32 32 5 2 24",
    "conv 40 40 5 2 12",
    "conv 64 64 5 2 16",
    "conv 32 32 7 2 24",
    "conv 32 64 3 2 24",
    "conv 64 64 1x7x7 1x2x2 1x56x56",
    "conv 64 128 1x3x3 1x2x2 1x56x56",
    "transposed 64 32 4 2 16",
    "transposed 32 32 5 2 24",
    "transposed 64 64 1x4x4 1x2x2 1x56x56",
)
INPUTS = ("conv 1 16 5 2 32", "conv 1 32 7 2 32", "conv 3 64 1x7x7 1x2x2 1x112x112")
DIRECT = Method("direct")
TOLD = 3  # tiles, the best by estimate, also where `conv: auto` tries none


def main() -> None:
    """A line for each layer."""
    options = _options()
    print("| layer | direct | spectral | tile | together | auto: forward, data, weight | ms |")
    print("|---|---|---|---|---|---|---|")
    for words in options.layers or (INPUTS if options.input else LAYERS):
        print(line(words, "input" if options.input else "node"), flush=True)


def line(words: str, source: str) -> str:
    """One line of the table."""
    shape = shape_of(words, PASSES if source == "node" else ("forward", "weight"))
    tried = candidates(shape)
    methods = list(dict.fromkeys([*tried, *ALGORITHMS["spectral"].told(shape)[:TOLD]]))
    costs = needed(timed(shape, methods), shape)
    sums = {method: shared_total(dict.fromkeys(PASSES, method), costs) for method in methods}
    best = min(
        (method for method in methods if method != DIRECT), key=sums.__getitem__, default=None
    )
    chosen = cheapest({method: costs[method] for method in tried})
    cells = [words, passes(shape, DIRECT, costs)]
    if best:
        tile = str(best).removeprefix("spectral ")
        cells += [
            passes(shape, best, costs),
            tile,
            f"{sums[DIRECT] * 1e3:.1f} / {sums[best] * 1e3:.1f}",
        ]
    else:
        cells += ["-", "-", f"{sums[DIRECT] * 1e3:.1f}"]
    picked = {which: chosen.method(which) for which in shape.passes}
    names = list(dict.fromkeys(map(str, picked.values())))
    cells += [names[0] if len(names) == 1 else ", ".join(map(str, picked.values()))]
    cells += [f"{shared_total({which: chosen.method(which) for which in PASSES}, costs) * 1e3:.1f}"]
    return f"| {' | '.join(cells)} |"


def passes(shape: ConvShape, method: Method, costs: Costs) -> str:
    """Times of the passes one after the other; each pays for what it is the first to use."""
    found, before, done = [], 0.0, dict[PassName, Method]()
    for which in shape.passes:
        done[which] = method
        after = shared_total(done, costs)
        found.append(f"{(after - before) * 1e3:.2f}")
        before = after
    return " / ".join(found)


def shape_of(words: str, wanted: tuple[PassName, ...]) -> ConvShape:
    """The layer that some words describe."""
    kind, inputs, outputs, *numbers = words.split()
    size, stride, places = map(triple, numbers)
    reach = [max(0, k - s) for k, s in zip(size, stride, strict=True)]
    z, y, x = ((n // 2, n - n // 2) for n in reach)
    large = places[0] * stride[0], places[1] * stride[1], places[2] * stride[2]
    ends = (places, large) if kind == "transposed" else (large, places)
    return ConvShape(
        int(inputs), int(outputs), size, (1, 1, 1), stride, *ends, 1, wanted, (z, y, x),
        transposed=kind == "transposed",
    )  # fmt: skip


def triple(word: str) -> Triple:
    """Numbers of the axes."""
    numbers = list(map(int, word.split("x")))
    z, y, x = numbers * 3 if len(numbers) == 1 else numbers
    return z, y, x


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("layers", nargs="*", metavar="LAYER")
    parser.add_argument("--input", action="store_true", help="the source is an input")
    return parser.parse_args()


if __name__ == "__main__":
    main()
