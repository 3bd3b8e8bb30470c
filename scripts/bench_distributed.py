"""Updates on several ranks: what messages cost by each strategy, and PyTorch's DistributedDataParallel beside them.

    python scripts/bench_distributed.py --ranks 2 4 --links shared tcp 1gbit 100mbit
    python scripts/bench_distributed.py --sweep --ranks 4 --links tcp     # sums of many sizes
    python scripts/bench_distributed.py --replay                          # simulated: 16 to 256 ranks
    python scripts/bench_distributed.py --exchanges --ranks 2 4 8 --links shared  # small values, by all to all
    python scripts/bench_distributed.py --torch ~/torch/bin/python        # another Python that has torch

`shared` is memory that ranks share, `tcp` loopback; a rate such as `1gbit` is measured through network
namespaces with token buckets at both ends of each rank's cable, which needs root, and is left out, and said so,
where it cannot be had. Needs mpi4py and an MPI with MPI_THREAD_MULTIPLE (`pip install "znnpy[mpi]" mpich`).

Every rank computes some samples of the net an update, on `--threads` threads. `alone`: the same updates on all
ranks at once, without messages; `exposed`: what an update takes more with them. `overlap` is the share of what
`blocking` exposes that a strategy hides. Blocks of both kinds of updates take turns; medians. What ranks
on one machine take from each other's cores and memory is in both. `others`: cores that other processes
kept busy; above 0.1 the numbers are spoilt.

`--exchanges`: milliseconds of one after the other, and of processor time that the communication thread takes for one;
then simulated ones of `--replayed` ranks: rounds in which each rank meets another one, who looks between two naps,
`--latency` apart, and what Python does with all values, measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from ranks.nets import Net, NetError, opened

HERE = Path(__file__).resolve().parent
SECONDS = 900  # more than any of the runs here takes
Row = dict[str, Any]


def main() -> int:
    """Measure what the command line asks for."""
    options = _options()
    # Stopped, it takes its nets down.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    rows: list[Row] = []
    what = sweep if options.sweep else exchanges if options.exchanges else updates
    for row in replay(options) if options.replay else measured(options, what):
        rows.append(row)
        print(_line(row), flush=True)
    if options.exchanges:
        for row in simulated_exchanges(options):
            rows.append(row)
            print(_line(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def measured(options: argparse.Namespace, what: Any) -> Iterator[Row]:
    """Rows of every net and number of ranks that can be had here."""
    for links in options.links:
        for ranks in options.ranks:
            try:
                with opened(links, ranks) as net:
                    for row in what(options, net, ranks):
                        yield {"links": links, "ranks": ranks} | row
            except NetError as error:
                yield {"links": links, "ranks": ranks, "left out": str(error)}


def updates(options: argparse.Namespace, net: Net, ranks: int) -> Iterator[Row]:
    """A row a strategy, and one of PyTorch."""
    more = ["--net", options.net, "--threads", options.threads, "--updates", options.updates]
    more += [
        "--blocks",
        options.blocks,
        *(["--samples", options.samples] if options.samples else []),
    ]
    own = [*more, "--conv", options.conv, "--strategies", *options.strategies]
    found, others = _run(net, ranks, "ours.py", own)
    blocking = found["strategies"].get("blocking")
    for name, times in found["strategies"].items():
        row = {"by": f"znnpy {name}", **times, "others": others}
        if blocking and name != "blocking":
            row["overlap"] = 1 - times["exposed"] / blocking["exposed"]
        yield row
    if options.torch:
        where = ["--address", net.address, "--interface", net.interface]
        found, others = _run(net, ranks, "ddp.py", [*more, *where], options.torch)
        by = f"DistributedDataParallel, torch {found.pop('torch')}"
        yield {"by": by, **found, "others": others}


def sweep(options: argparse.Namespace, net: Net, ranks: int) -> Iterator[Row]:
    """A row a size: seconds of a sum over all ranks by MPI's own allreduce, and by ours."""
    sizes = [str(size) for size in options.sizes]
    colors = [str(count) for count in options.colors]
    found, others = _run(net, ranks, "sweep.py", ["--sizes", *sizes, "--colors", *colors])
    for size, times in found.items():
        yield {"bytes": int(size), **times, "others": others}


def exchanges(options: argparse.Namespace, net: Net, ranks: int) -> Iterator[Row]:
    """A row: small values of all ranks to all."""
    found, others = _run(net, ranks, "exchanges.py", ["--count", 100])
    yield {**found, "others": others}


def simulated_exchanges(options: argparse.Namespace) -> Iterator[Row]:
    """A row for each number of ranks: rounds of twice as many values, and what Python does in the end."""
    from ranks.exchanges import in_python, rounds

    for ranks in options.replayed:
        messages, python = rounds(ranks, options.latency * 1e-6), in_python(ranks)
        yield {
            "simulated ranks": ranks,
            "exchange": messages + python,
            "of it in Python": python,
        }


def replay(options: argparse.Namespace) -> Iterator[Row]:
    """Simulated rows: the net recorded on one rank, its messages by latency and bandwidth."""
    from ranks.cases import case_of

    import znnpy
    from znnpy.profile.recorded_updates import events_needed, profile_updates
    from znnpy.profile.simulation import simulate_ranks
    from znnpy.simulate import Links

    case = case_of(options.net, options.samples)

    def model(record: int) -> znnpy.Model:
        return znnpy.Model(
            case.network,
            output_shape=case.output_shape,
            batch=case.batch,
            threads=options.threads,
            loss=case.loss,
            conv=options.conv,
            execution=znnpy.Execution(record=record),
        )

    with model(0) as counted:
        needed = events_needed(counted, 14)
    with model(needed) as recorded:
        made = {options.threads: (profile_updates(recorded, 12), recorded)}
    for gigabits in options.gigabits:
        links = Links(options.latency * 1e-6, gigabits * 1e9 / 8)
        found = simulate_ranks(made, options.replayed, links)
        for row in found["rows"]:
            yield {"simulated": f"{gigabits:g} Gbit/s", "alone": found["alone"], **row}


def _run(
    net: Net, ranks: int, script: str, arguments: list[Any], python: str = sys.executable
) -> tuple[Any, float]:
    """What rank 0 of a script prints, and how many cores others kept busy meanwhile."""
    command = net.mpiexec(ranks, [python, str(HERE / "ranks" / script), *map(str, arguments)])
    start, busy, own = time.monotonic(), _busy(), _children()
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, env=_environment()
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    spent = (_busy() - busy) - (_children() - own)
    return json.loads(done.stdout.splitlines()[-1]), spent / (time.monotonic() - start)


def _busy() -> float:
    """Seconds for which cores of this machine have been busy."""
    times = psutil.cpu_times()
    return times.user + times.system + times.nice


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _environment() -> dict[str, str]:
    """Where the ranks find this znnpy, whatever Python runs them; one thread each for other libraries."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _line(row: Row) -> str:
    return " | ".join(f"{name} {_value(name, value)}" for name, value in row.items())


def _value(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.2f}" if name in ("overlap", "others") else f"{value * 1e3:.2f} ms"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--links", nargs="+", default=["shared", "tcp", "1gbit", "100mbit"])
    parser.add_argument(
        "--net", default="cifar10_quick", help="a recipe of images, or FILTERxWIDTH"
    )
    parser.add_argument("--samples", type=int, help="of each rank (default: the recipe's, or 1)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--conv", default="auto", help="znnpy's algorithm of convolutions")
    parser.add_argument("--strategies", nargs="+", metavar="NAME[:COLORS]",
                        default=["tree", "multicolor:2", "multicolor:4", "allreduce", "blocking"])  # fmt: skip
    parser.add_argument("--updates", type=int, default=20, help="of a block")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--torch", metavar="PYTHON", help="a Python that has torch and gloo")
    parser.add_argument("--sweep", action="store_true", help="sums of many sizes, no network")
    parser.add_argument("--sizes", nargs="+", type=int, default=[1 << k for k in range(12, 25, 2)])
    parser.add_argument("--colors", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--exchanges", action="store_true", help="small values, no network")
    parser.add_argument("--replay", action="store_true", help="simulate instead of measuring")
    parser.add_argument("--replayed", nargs="+", type=int, default=[16, 64, 256], metavar="RANKS")
    parser.add_argument("--gigabits", nargs="+", type=float, default=[1.0, 10.0, 100.0])
    parser.add_argument(
        "--latency", type=float, default=20.0, help="microseconds, of what is simulated"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
