"""The command `znnpy profile`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from znnpy.cli.global_options import global_options, suggest
from znnpy.cli.module_loading import loading
from znnpy.cli.next_prediction import suggest_predict
from znnpy.cli.options import (
    SIZES,
    AsJson,
    MaxMemory,
    Overrides,
    block_sizes,
    memory_bytes,
    new_path,
    overrides,
)

if TYPE_CHECKING:
    from rich.table import Table

    from znnpy.distributed.world import World
    from znnpy.profile import Subject
    from znnpy.simulate import Links
    from znnpy.train.progress import Reporter

OTHER = "Another machine to predict"
MOST = 4096  # cores, threads, ranks
MOST_RATE = 1e9  # GB/s, Gbit/s, and microseconds: of no machine
PATCH = (48, 48, 48)  # output voxels where neither an option nor the config says


def profile(
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="Config file (YAML).")
    ] = None,
    predict: Annotated[
        Path | None,
        typer.Option(
            "--predict", metavar="RUN", help="Record forward passes of a run, not updates."
        ),
    ] = None,
    updates: Annotated[
        int,
        typer.Option(
            "--updates", metavar="N", min=1, help="Updates (or forward passes) to record."
        ),
    ] = 10,
    threads: Annotated[
        str,
        typer.Option(
            "--threads",
            metavar="P[,P...]",
            help="Thread counts, one run each (default: all cores).",
        ),
    ] = "",
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="NAME", help="Scheduling policy, or all.")
    ] = None,
    ranks: Annotated[
        str,
        typer.Option(
            "--ranks", metavar="P[,P...]", help="Numbers of ranks to simulate, e.g. 2,4,16,64,256."
        ),
    ] = "",
    bandwidth: Annotated[
        float | None,
        typer.Option(
            "--bandwidth",
            min=1e-6,
            max=MOST_RATE,
            metavar="GBIT/S",
            help="For --ranks: bandwidth of each rank, each way (default: 10).",
        ),
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(
            "--latency",
            min=0,
            max=MOST_RATE,
            metavar="US",
            help="For --ranks: latency of each message (default: 20).",
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(
            "--cores",
            min=1,
            max=MOST,
            metavar="N",
            rich_help_panel=OTHER,
            help="Its cores (default: as many as here).",
        ),
    ] = None,
    memory_bandwidth: Annotated[
        float | None,
        typer.Option(
            "--memory-bandwidth",
            min=1e-3,
            max=MOST_RATE,
            metavar="GB/S",
            rich_help_panel=OTHER,
            help="Bandwidth of its memory (default: for each core as much as measured here).",
        ),
    ] = None,
    l3: Annotated[
        str | None,
        typer.Option(
            "--l3",
            metavar="SIZE",
            rich_help_panel=OTHER,
            help="Its last-level caches together, e.g. 256MiB (default: for each core as much as here).",
        ),
    ] = None,
    domains: Annotated[
        int | None,
        typer.Option(
            "--domains",
            min=1,
            max=MOST,
            metavar="N",
            rich_help_panel=OTHER,
            help="How many such caches it has (default: as many for each core as here).",
        ),
    ] = None,
    patch: Annotated[
        str | None,
        typer.Option(
            metavar=SIZES, help="For --predict: output patch (default: the window, or 48)."
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--output",
            "--out",
            metavar="DIR",
            parser=new_path,
            help="Folder for report and traces.",
        ),
    ] = Path("profile"),
    arrows: Annotated[
        bool, typer.Option("--arrows", help="Draw in the trace which tasks wait for which.")
    ] = False,
    full_graph: Annotated[
        bool, typer.Option("--full-graph", help="Write every task to graph.dot.")
    ] = False,
    as_json: AsJson = False,
    set_: Overrides = None,
    max_memory: MaxMemory = None,
) -> None:
    """Record updates on random data: where the time goes, and whether more cores would help.

    Writes report.html, trace-P.json.gz for each number P of threads (for Perfetto; trace.json.gz is
    that of the most), summary.json and graph.dot. Under mpiexec or srun all ranks share each update (data parallel),
    and rank 0 writes what it did and sent.
    """
    with loading():
        import json

        from znnpy.distributed.rendezvous import joined
        from znnpy.graph.policies import POLICIES
        from znnpy.profile import OtherMachine, Wishes, profile_subject
        from znnpy.train.progress import Quiet, choose_reporter

    words = overrides(set_, None, max_memory)
    if policy not in (None, "all"):
        words.append(f"run.policy={policy}")
    compared = tuple(POLICIES) if policy == "all" else ()
    counts = _counts(threads, "--threads"), _counts(ranks, "--ranks")
    links = _links(bandwidth, latency, simulated=bool(counts[1]))
    bandwidth = None if memory_bandwidth is None else memory_bandwidth * 1e9
    machine = OtherMachine(cores, bandwidth, memory_bytes(l3, "--l3"), domains)
    other = machine if machine != OtherMachine() else None
    wishes = Wishes(updates, counts[0], compared, arrows, full_graph, counts[1], links, other)
    with joined(debug=global_options().verbose) as world:
        reporter = choose_reporter(quiet=global_options().quiet) if world.rank == 0 else Quiet()
        subject = _subject(config, predict, words, patch, reporter, world)
        summary = profile_subject(subject, out, wishes)
        reporter.close()
    if world.rank:
        return
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        return
    _print(summary, out)
    if config is not None:
        suggest("train", config, *(word for it in words for word in ("--set", it)))
    else:
        assert predict is not None  # one of both is given
        suggest_predict(predict, "FILE:DATASET")


def _subject(
    config: Path | None,
    run: Path | None,
    words: list[str],
    patch: str | None,
    reporter: Reporter,
    world: World,
) -> Subject:
    from znnpy.cli.config_of_ranks import config_of_ranks
    from znnpy.errors import PlanError
    from znnpy.infer.patch_search import covering
    from znnpy.infer.tiling import Tiling
    from znnpy.network import trained_network
    from znnpy.profile import PredictionSubject, Subject
    from znnpy.train.start import read_run

    if (config is None) == (run is None):
        raise typer.BadParameter("give either a config file or --predict RUN")
    tell = reporter.preparing, reporter.note
    if config is not None:
        loaded = config_of_ranks(config, words, world)
        return Subject(loaded, trained_network(loaded), *tell, world)
    assert run is not None
    if world.size > 1:
        raise PlanError("--predict: forward passes are of one process; start it without mpiexec")
    saved = read_run(run, reporter, words)
    given = block_sizes(patch, "--patch")
    window = Tiling.of(saved.config, saved.network, given).window
    sizes = window or given or covering(saved.network, PATCH)
    return PredictionSubject(saved.config, saved.network, sizes, *tell)


def _counts(text: str, option: str) -> tuple[int, ...]:
    words = [word for word in text.split(",") if word.strip()]
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise typer.BadParameter(f"{text!r} is not like 1,2,4", param_hint=option)
    if words and max(map(int, words)) > MOST:
        raise typer.BadParameter(f"{text!r}: at most {MOST}", param_hint=option)
    return tuple(int(word) for word in words)


def _links(bandwidth: float | None, latency: float | None, *, simulated: bool) -> Links:
    """Return the cost of messages between simulated ranks, from Gbit/s and microseconds."""
    from znnpy.simulate import Links

    given = {"--bandwidth": bandwidth, "--latency": latency}
    idle = [option for option, value in given.items() if value is not None]
    if idle and not simulated:
        raise typer.BadParameter(
            f"{' and '.join(idle)}: messages are between the ranks of --ranks; give that too"
        )
    usual = Links()
    return Links(
        usual.latency if latency is None else latency * 1e-6,
        usual.bandwidth if bandwidth is None else bandwidth * 1e9 / 8,
    )


def _print(summary: dict[str, Any], out: Path) -> None:
    from znnpy.cli.tables import console
    from znnpy.pictures.svg import seconds

    terminal, runs = console(), summary["runs"]
    run = runs[-1]
    terminal.print(_workers(summary, run))
    lines = [
        "work by kind: " + _shares(run["kinds"], run["work"]),
        "the workers' time: " + _shares(run["losses"], sum(run["losses"].values())),
        f"T1 {seconds(run['work'])}, Tinf {seconds(run['span'])}, Brent's bound T1 / P + Tinf "
        f"{seconds(run['bound'])}, achieved {seconds(run['seconds'])}",
        *(_times(runs[0], other, doubted=bool(summary["doubts"])) for other in runs[1:]),
        *(
            f"policy {p['name']}: {seconds(p['measured_seconds'])}"
            for p in summary.get("policies", [])
            if p["measured_seconds"] is not None
        ),
        *_exposed(summary, run["messages"]),
        *(f"- {sentence}" for sentence in run["advice"]),
        f"report.html, trace.json.gz (open in Perfetto), summary.json and graph.dot are in {out}",
    ]
    for line in lines:
        terminal.print(line, highlight=False, markup=False)
    if not summary["doubts"]:
        for table in _forecasts(summary):
            terminal.print(table)
    if "ranks" in summary:
        terminal.print(_ranks(summary["ranks"], doubted=bool(summary["doubts"])))


def _forecasts(summary: dict[str, Any]) -> Iterator[Table]:
    """Yield what an update would take on the other machine that was asked for, and what would make it shorter."""
    from rich.table import Table

    from znnpy.pictures.svg import seconds
    from znnpy.profile.machine import describe_figures
    from znnpy.profile.simulation import rows_of

    simulation = summary["simulation"]
    if simulation["memory"] is None:
        return
    table = Table(
        title=f"simulated on {describe_figures(simulation['memory'])}: one {summary['what']}",
        title_justify="left",
    )
    for name in ("workers", "time", "from", "to", "times as fast", "memory", "waits for memory"):
        table.add_column(name, justify="right")
    for row in rows_of(simulation):
        table.add_row(
            str(row["workers"]),
            *(seconds(row[name]) for name in ("seconds", "least", "most")),
            f"{row['speed_up']:.1f}",
            f"{row['bytes'] / 2**20:.0f} MiB",
            f"{row['waiting']:.1%}",
        )
    yield table
    table, changes = Table(title="and what would help", title_justify="left"), summary["what_if"]
    table.add_column("change")
    for count in changes["workers"]:
        table.add_column(f"{count} worker{'s' * (count > 1)}", justify="right")
    for row in (
        {"what": "as it is", "seconds": changes["seconds"]},
        *({"what": _change(row), **row} for row in changes["changes"]),
    ):
        table.add_row(row["what"], *map(seconds, row["seconds"]))
    yield table


def _change(row: dict[str, Any]) -> str:
    kind = row["change"] == "kind"
    return f"{row['name']} tasks twice as fast" if kind else f"tasks of {row['name']} halved"


def _exposed(summary: dict[str, Any], found: dict[str, Any] | None) -> Iterator[str]:
    """Yield how long workers waited for messages, if there were any."""
    from znnpy.pictures.svg import seconds

    if found:
        layers = ", ".join(f"{name} {seconds(it)}" for name, it in found["by_layer"].items())
        yield (
            f"messages of rank 0 of {summary['world']} by {summary['strategy']}: exposed {seconds(found['exposed'])} "
            f"of one {summary['what']}" + (f" ({layers})" if layers else "")
        )


def _ranks(found: dict[str, Any], *, doubted: bool) -> Table:
    """Return a table of simulated seconds of an update: by number of ranks and strategy, with exposed communication."""
    from rich.table import Table

    from znnpy.pictures.svg import seconds
    from znnpy.profile.simulation import by_strategy

    counts, rows = by_strategy(found)
    table = Table(
        title=f"simulated ranks at {found['bandwidth'] * 8e-9:g} Gbit/s and {found['latency'] * 1e6:g} us, "
        f"each computing {seconds(found['alone'])} an update: time, and of it exposed"
        + (" (from a doubtful recording, see above)" if doubted else ""),
        title_justify="left",
    )
    table.add_column("ranks")
    for count in counts:
        table.add_column(str(count), justify="right")
    for name, cells in rows.items():
        table.add_row(
            name, *(f"{seconds(c['seconds'])}\n{seconds(c['exposed'])}" if c else "" for c in cells)
        )
    return table


def _shares(parts: dict[str, float], total: float) -> str:
    return ", ".join(
        f"{name} {share:.1%}"
        for name, seconds in parts.items()
        if (share := seconds / max(total, 1e-12)) >= 0.0005
    )


def _times(first: dict[str, Any], other: dict[str, Any], *, doubted: bool) -> str:
    from znnpy.pictures.svg import seconds

    if doubted:
        return (
            f"measured: {first['threads']} worker {seconds(first['seconds'])}, {other['threads']} workers "
            f"{seconds(other['seconds'])}; how many times as fast that is cannot be said (below)"
        )
    return (
        f"{other['threads']} workers are {first['seconds'] / other['seconds']:.2f} times as fast as "
        f"{first['threads']} ({seconds(first['seconds'])})"
    )


def _workers(summary: dict[str, Any], run: dict[str, Any]) -> Table:
    from rich.table import Table

    from znnpy.pictures.svg import seconds

    workers = f"{run['threads']} worker{'s' * (run['threads'] > 1)}"
    table = Table(
        title=f"{workers}: {seconds(run['seconds'])} for one {summary['what']}, "
        f"{run['tasks']} tasks, {run['updates']} recorded",
        title_justify="left",
    )
    for name in ("worker", "busy", "dispatch", "searching", "parked", "tasks", "steals", "failed"):
        table.add_column(name, justify="right")
    for number, worker in enumerate(run["workers"]):
        shares = (worker[part] for part in ("busy", "dispatch", "searching", "parked"))
        table.add_row(
            str(number),
            *(f"{share:.1%}" for share in shares),
            str(worker["tasks"]),
            str(worker["steals"]),
            str(worker["failed_steals"]),
        )
    return table
