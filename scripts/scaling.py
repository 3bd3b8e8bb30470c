"""What more workers bring: simulated speed-ups of real plans, and convergent sums.

    python scripts/scaling.py --recorded 3x10 3x40 scripts/networks/unet3d.yaml --workers 16 64 [--json FILE]
    python scripts/scaling.py --recorded volumes/fibsem.yaml --forward
    python scripts/scaling.py --measured 3x10 3x40 scripts/networks/unet3d.yaml --workers 1 2 4 8 16
    python scripts/scaling.py --sums

`--recorded`: nets are FILTERxWIDTH (ZNN's CTMCTMCTCT) or configs. The graph that P workers would get runs on one
worker, so that each of its tasks is timed; then P workers are simulated. Speed-up is the time of an update by the graph
for one worker over the simulated one: finer tasks pay for themselves. Each token that a task brings takes the
hand-over of a cache line between cores (`--line`, ns). Where others use the core, `--least` takes the shortest of many
`--updates` of each task in place of their median. Memory is counted beside that with `--memory-bandwidth 300`
(GB/s), of a machine with as many cores as the most workers; `--l3 256MiB` and `--domains 8`: its last-level caches.

`--measured` runs each number of workers on as many cores, in turns (`--rounds`, of `--seconds` each), and simulates the
most of them as `--recorded` does, from tasks on one of these cores; "tasks take": how many times as long beside all
others; "measured by both": what is left for the scheduler to answer for. Below each net stands what the most workers
lose to what.

`--sums` measures a fan-in by the three strategies on 1 and 2 workers and simulates it on 64.
"""

from __future__ import annotations

import argparse
from math import inf
from pathlib import Path

import typer
from measured_scaling import show_measured
from recorded_scaling import CASE, show_recorded

from znnpy.cli.options import memory_bytes
from znnpy.profile.sum_strategies import compare_sums
from znnpy.scheduler.core_count import available_cores


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--recorded", nargs="+", metavar="NET")
    what.add_argument("--measured", nargs="+", metavar="NET")
    what.add_argument("--sums", action="store_true")
    parser.add_argument("--rounds", type=int, default=3, help="of --measured")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a round of --measured")
    parser.add_argument("--workers", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--forward", action="store_true", help="passes of a patch, not updates")
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--least", action="store_true", help="of each task's runs, not medians")
    parser.add_argument("--line", type=float, default=50.0, help="ns (default: 50)")
    parser.add_argument("--memory-bandwidth", type=float, metavar="GB/S")
    parser.add_argument("--l3", metavar="SIZE")
    parser.add_argument("--domains", type=int)
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    refused = _refused(chosen)
    if refused:
        parser.error(refused)
    if chosen.sums:
        show_sums()
    elif chosen.measured:
        show_measured(chosen)
    else:
        show_recorded(chosen)


def _refused(chosen: argparse.Namespace) -> str:
    """What is wrong with the options, "" if nothing is."""
    for net in (*(chosen.recorded or ()), *(chosen.measured or ())):
        if not CASE.fullmatch(net) and not Path(net).is_file():
            return f"{net}: neither FILTERxWIDTH, as 3x10, nor a config's file"
    above = ("rounds", "seconds", "updates", "line", "memory_bandwidth", "domains")
    numbers = {f"--{it.replace('_', '-')}": getattr(chosen, it) for it in above}
    low = [name for name, it in numbers.items() if it is not None and not 0 < it < inf]
    low += ["--workers"] if min(chosen.workers) < 1 else []
    if low:
        return f"{' and '.join(low)}: must be above 0"
    if chosen.measured and min(chosen.workers) > available_cores():
        return (
            f"--measured takes real cores, and there are {available_cores()}: name fewer --workers"
        )
    if chosen.least and not chosen.recorded:
        return "--least is of --recorded"
    if chosen.memory_bandwidth is None and (chosen.l3 is not None or chosen.domains is not None):
        return "--l3 and --domains are of memory, which --memory-bandwidth counts"
    try:
        memory_bytes(chosen.l3, "--l3")
    except typer.BadParameter as error:
        return f"--l3: {error}"
    if chosen.json and not chosen.json.parent.is_dir():
        return f"--json: there is no folder {chosen.json.parent}"
    return ""


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
