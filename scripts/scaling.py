"""What more workers bring: simulated speed-ups of real plans, of ZNN's benchmark net by width, and convergent sums.

    python scripts/scaling.py --recorded 3x10 3x40 scripts/networks/unet3d.yaml --workers 16 64 [--json FILE]
    python scripts/scaling.py [--filters 3] [--widths 5 10 20 40 80 120] [--conv direct] [--picture FILE]
    python scripts/scaling.py --sums

`--recorded`: nets are FILTERxWIDTH (ZNN's CTMCTMCTCT) or configs. The graph that P workers would get runs on one
worker, so that each of its tasks is timed; then P workers are simulated. Speed-up is the time of an update by the graph
for one worker over the simulated one: finer tasks pay for themselves. Each token that a task brings takes the
hand-over of a cache line between cores (`--line`, ns). Memory is counted beside that with `--memory-bandwidth 300`
(GB/s), of a machine with as many cores as the most workers; `--l3 256MiB` and `--domains 8`: its last-level caches.

Without it, task graphs are declared without memory, with estimated costs, as they are for each number of workers;
nothing of the network runs. The net is conv, relu, max-filter (twice), conv, relu, conv; 12^3 outputs.
`--sums` measures a fan-in by the three strategies on 1 and 2 workers and simulates it on 64.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from peers.cases import network_case
from recorded_scaling import show_recorded

from znnpy.engine.estimate import estimated_graph
from znnpy.profile.sum_strategies import compare_sums
from znnpy.simulate import Replay, simulate

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128)


def main() -> None:
    """Print the table, draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--filters", type=int, default=3)
    parser.add_argument("--widths", type=int, nargs="+", default=[5, 10, 20, 40, 80, 120])
    parser.add_argument("--conv", choices=["auto", "direct", "fft", "spectral"], default="auto")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--sums", action="store_true")
    parser.add_argument("--recorded", nargs="+", metavar="NET")
    parser.add_argument("--workers", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--line", type=float, default=50.0, help="ns (default: 50)")
    parser.add_argument("--memory-bandwidth", type=float, metavar="GB/S")
    parser.add_argument("--l3", metavar="SIZE")
    parser.add_argument("--domains", type=int)
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    if chosen.recorded:
        show_recorded(chosen)
        return
    if chosen.sums:
        show_sums()
        return
    print(f"{'width':>6} {'tasks':>6} " + " ".join(f"{p:>6}" for p in WORKERS))
    curves = {}
    for width in chosen.widths:
        tasks, curves[width] = speed_ups(f"{chosen.filters}x{width}", chosen.conv)
        numbers = " ".join(f"{value:6.1f}" for value in curves[width])
        print(f"{width:6} {tasks:6} {numbers}", flush=True)
    if chosen.picture:
        draw(curves, chosen.picture)


def speed_ups(spec: str, conv: str) -> tuple[int, list[float]]:
    """(tasks of an update, speed-up over one worker on each of WORKERS)."""
    case, seconds = network_case(spec), []
    for workers in WORKERS:
        graph = estimated_graph(case.network, case.output_shape, conv, workers)
        seconds.append(simulate(Replay.of(graph), workers).seconds_per_step)
    return graph.size // 2, [seconds[0] / value for value in seconds]


def draw(curves: dict[int, Sequence[float]], file: Path) -> None:
    """Speed-up by number of workers, a line for each width."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    axes.plot(WORKERS, WORKERS, ":", color="gray", label="P times as fast")
    for width, values in curves.items():
        axes.plot(WORKERS, values, marker="o", markersize=3, label=f"width {width}")
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="speed-up (simulated)")
    axes.set_xticks(WORKERS, [str(p) for p in WORKERS])
    axes.set_yticks(WORKERS, [str(p) for p in WORKERS])
    axes.minorticks_off()
    axes.legend(frameon=False)
    figure.savefig(file, dpi=110)


def show_sums() -> None:
    """Measured and simulated times of the three strategies."""
    print(
        f"{'workers':>7} {'strategy':10} {'seconds':>9} {'in sums':>9} {'waiting':>9} {'on 64':>9}"
    )
    for workers in (1, 2):
        for row in compare_sums(workers):
            columns = ("seconds", "seconds_in_sums", "seconds_waiting", "simulated_64")
            times = " ".join(f"{row[key] * 1e3:6.2f} ms" for key in columns)
            print(f"{workers:7} {row['name']:10} {times}")


if __name__ == "__main__":
    main()
