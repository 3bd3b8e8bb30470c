"""Seconds from `Model(...)` to the first update begun, by what takes them: with nothing kept, wisdom, graphs too.

    python scripts/bench_first_update.py nnunet resenc flat      # 15 GB are needed, kernels compiled before
    python scripts/bench_first_update.py nnunet --size 64 64 64 --batch 2 --microbatch 1
    python scripts/bench_first_update.py --small                 # models of one to eight layers

Wisdom and graphs lie in a folder of their own, so those of this machine stay as they are. Rows are processor seconds of
this process, each without those of rows that it calls; kernels that are not on disk are compiled in the first of them.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from znnpy import Model, Optimizer, Training, load_network
from znnpy.engine import autotune, construction, execution, memory_planning, single_layer, timing
from znnpy.engine.float32_engine import SingleEngine
from znnpy.engine.kept import folder, graphs
from znnpy.engine.tasks import dependencies
from znnpy.geometry import fit_input
from znnpy.graph import GraphBuilder
from znnpy.plan import wisdom

_NNUNET = {
    "pool": "strided", "norm": "instance", "function": "leaky_relu", "bias": True, "outputs": 2, "supervise": 3
}  # fmt: skip
_RESENC = {
    "stem": 3, "blocks": [1, 3, 4, 6, 6], "up_block": "plain", "up_convs": 1,
    "block": {"kind": "residual", "from": "input", "add": "norm", "shortcut": "average"},
}  # fmt: skip
_WIDTHS = [32, 64, 128, 256, 320]
_FLAT = {"widths": [32, 64, 128, 256, 512, 512, 512, 512], "size": [1, 3, 3], "down": [1, 2, 2]}
NETS: dict[str, tuple[dict[str, Any], tuple[int, int, int], int]] = {
    "nnunet": (_NNUNET | {"widths": _WIDTHS}, (128, 128, 128), 2),
    "resenc": (_NNUNET | _RESENC | {"widths": _WIDTHS}, (96, 96, 96), 2),
    "flat": (_NNUNET | _FLAT, (1, 512, 512), 12),
}
"""Keys of `unet`, size of the input (z, y, x), batch: nnU-Net's 3d_fullres, its ResEnc and its 2d."""
PLACES: tuple[tuple[str, Any, str], ...] = (
    ("layers measured: declared", single_layer, "declared"),
    ("layers measured: memory, layouts", timing.Workbench, "declared"),
    ("layers measured: memory, layouts", timing.Workbench, "of"),
    ("layers measured: connected", single_layer, "connect"),
    ("layers measured: trials made", timing.Trial, "__init__"),
    ("layers measured: runs", timing.Trial, "look"),
    ("layers measured: whom to run again", timing, "settle"),
    ("layers measured: zeros, wisdom", autotune, "measured"),
    ("kernels compiled or loaded", autotune, "compile_all"),
    ("kernels compiled or loaded", timing, "compile_all"),
    ("kernels compiled or loaded", execution, "compile_all"),
    ("plan chosen", construction, "planned"),
    ("memory: tasks declared", memory_planning, "declare_all"),
    ("memory: tasks declared", memory_planning, "declare_planned"),
    ("runs", memory_planning, "in_runs"),
    ("memory: buffers placed", memory_planning, "share"),
    ("memory: the rest", graphs, "planned_within"),
    ("tasks declared", graphs, "with_tasks"),
    ("graphs taken from their file", graphs, "recalled"),
    ("graphs packed", graphs.Keeper, "noted"),
    ("graphs written", graphs.Keeper, "write"),
    ("memory taken", construction, "SingleEngine"),
    ("parameters set", SingleEngine, "set_parameters"),
    ("tasks declared", execution, "declare"),
    ("gates", execution, "gated_runs"),
    ("odd step", execution, "all_steps"),
    ("connected: table of accesses", dependencies.Accesses, "of"),
    ("connected: unwritten reads", dependencies.Accesses, "refuse_unwritten"),
    ("connected: predecessors", dependencies.Accesses, "predecessors"),
    ("connected: tasks added, joints", execution, "connect"),
    ("graph frozen", GraphBuilder, "build"),
    ("executor made", execution, "Executor"),
)
"""What a row counts, in the order in which rows are printed: a name, and the function with its home."""


class Watch:
    """Processor seconds by row, those of the innermost function that runs."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._open = ["the rest"]
        self._since = time.process_time()

    def turn(self) -> None:
        """Give what passed since to the row that is open."""
        now = time.process_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def watched(self, row: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its seconds counted for a row."""

        @functools.wraps(work)
        def counted(*arguments: Any, **keys: Any) -> Any:
            self.turn()
            self._open.append(row)
            self.calls[row] += 1
            try:
                return work(*arguments, **keys)
            finally:
                self.turn()
                self._open.pop()

        return counted


def started(name: str, options: argparse.Namespace) -> tuple[Watch, float, int]:
    """Make a model and begin its first update: what that took by rows, by the clock, and how many tasks it has."""
    keys, size, batch = NETS[name]
    network = load_network({"unet": keys})
    given = tuple(options.size or size)
    shapes = dict(fit_input(network, given).output_shapes)
    batch = options.batch or batch
    rng = np.random.default_rng(0)
    image = rng.standard_normal((batch, 1, *given), np.float32)
    targets = {
        node: np.zeros((batch, network.node(node).channels, *shape), np.float32)
        for node, shape in shapes.items()
    }
    watch = Watch()
    with _Patched(watch):
        begin, _ = time.perf_counter(), watch.turn()
        model = Model(
            network, shapes, batch, threads=options.threads, loss="square",
            optimizer=Optimizer("sgd", momentum=0.9), training=Training(microbatch=options.microbatch),
        )  # fmt: skip
        model.submit(image, targets)
        watch.turn()
        wall = time.perf_counter() - begin
    tasks = model.task_graph.size
    model.close()
    return watch, wall, tasks


class _Patched:
    """The functions of `PLACES` are watched within."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        for row, home, name in PLACES:
            known = vars(home)[name]
            self._before.append((home, name, known))
            work = getattr(home, name)
            watched = self._watch.watched(row, work)
            setattr(
                home, name, staticmethod(watched) if isinstance(known, classmethod) else watched
            )

    def __exit__(self, *_: object) -> None:
        for home, name, known in reversed(self._before):
            setattr(home, name, known)


def show(name: str, found: list[tuple[Watch, float, int]]) -> None:
    """Print a table of starts: with nothing kept, with wisdom, and with graphs as well."""
    print(f"\n{name}: {found[-1][2]} tasks of an even and an odd update")
    print(
        "| processor s | nothing kept | calls | wisdom kept | graphs too |\n|---|---|---|---|---|"
    )
    for row in (*dict.fromkeys(row for row, _, _ in PLACES), "the rest"):
        lost, *kept = (f"{watch.seconds[row]:.2f}" for watch, _, _ in found)
        print(f"| {' | '.join([row, lost, str(found[0][0].calls[row]), *kept])} |")
    sums = (f"{sum(watch.seconds.values()):.1f}" for watch, _, _ in found)
    for row, cells in (("all", sums), ("by the clock", (f"{wall:.1f}" for _, wall, _ in found))):
        lost, *kept = cells
        print(f"| {' | '.join([row, lost, '', *kept])} |", flush=True)


def starts(name: str, options: argparse.Namespace, home: Path) -> list[tuple[Watch, float, int]]:
    """Begin with nothing, with wisdom alone, and with wisdom and graphs, which lie in a folder."""
    wisdom.path = lambda: home / "wisdom.json"
    folder.home = lambda: home / "graphs"
    found = [started(name, options)]
    shutil.rmtree(folder.home(), ignore_errors=True)
    return found + [started(name, options) for _ in range(2)]


def small(options: argparse.Namespace) -> None:
    """Processor ms of `Model(...)` and its first update for chains of layers, wisdom kept; least of some."""
    print("| layers | Model(...) ms | and its first update ms |\n|---|---|---|")
    for layers in (1, 3, 8):
        layer = {"conv": {"channels": 4, "size": 3, "function": "relu"}}
        network = load_network({"layers": [layer] * layers})
        image = np.zeros((1, 1, *(6 + 2 * layers,) * 3), np.float32)
        target = np.zeros((1, 4, 6, 6, 6), np.float32)
        made, begun = [], []
        for _ in range(options.repeats):
            begin = time.process_time()
            model = Model(network, 6, threads=options.threads, loss="square")
            made.append(time.process_time() - begin)
            model.submit(image, target)
            begun.append(time.process_time() - begin)
            model.close()
        print(f"| {layers} | {min(made) * 1e3:.1f} | {min(begun) * 1e3:.1f} |", flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    options = _options()
    for name in options.net:
        with tempfile.TemporaryDirectory() as home:
            show(name, starts(name, options, Path(home)))
    if options.small:
        with tempfile.TemporaryDirectory() as home:
            wisdom.path = lambda: Path(home) / "wisdom.json"
            small(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("net", nargs="*", choices=[*NETS, []], default=[])
    parser.add_argument("--size", nargs=3, type=int, metavar=("Z", "Y", "X"))
    parser.add_argument("--batch", type=int)
    parser.add_argument("--microbatch", type=int, help="samples computed at once (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--repeats", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
