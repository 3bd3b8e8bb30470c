"""`znnpy profile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from znnpy.cli.options import AsJson, ConfigFile, MaxMemory, Overrides, overrides

if TYPE_CHECKING:
    from rich.table import Table


def profile(
    config: ConfigFile,
    updates: Annotated[int, typer.Option("--updates", min=1, help="Updates to record.")] = 10,
    threads: Annotated[
        str, typer.Option("--threads", metavar="P[,P...]", help="Thread counts, one run each.")
    ] = "",
    out: Annotated[Path, typer.Option("--out", help="Folder for traces and summary.")] = Path(
        "profile"
    ),
    as_json: AsJson = False,
    set_: Overrides = None,
    max_memory: MaxMemory = None,
) -> None:
    """Record a few updates on random data: where the time goes, and a trace for Perfetto."""
    import json

    from znnpy.config import load_config
    from znnpy.profile import profile_config

    loaded = load_config(config, overrides(set_, None, max_memory))
    summaries = profile_config(loaded, out, updates, _counts(threads))
    if as_json:
        typer.echo(json.dumps(summaries, indent=2))
        return
    _print(summaries, out)


def _counts(threads: str) -> list[int]:
    words = [word for word in threads.split(",") if word.strip()]
    if not all(word.strip().isdigit() and int(word) > 0 for word in words):
        raise typer.BadParameter(f"{threads!r} is not like 1,2,4", param_hint="--threads")
    return [int(word) for word in words]


def _print(summaries: list[dict[str, Any]], out: Path) -> None:
    from znnpy.cli.tables import console

    terminal = console()
    for summary in summaries:
        terminal.print(_workers(summary))
        kinds = ", ".join(
            f"{kind} {seconds / summary['work']:.0%}" for kind, seconds in summary["kinds"].items()
        )
        terminal.print(f"work by kind: {kinds}", highlight=False)
        terminal.print(
            f"work T1 {_ms(summary['work'])}, span Tinf {_ms(summary['span'])}, bound T1/P + Tinf "
            f"{_ms(summary['bound'])}, achieved {_ms(summary['seconds'])}: the tasks ran "
            f"{summary['speedup']:.2f} times as fast as one after the other",
            highlight=False,
        )
    first = summaries[0]
    for other in summaries[1:]:
        terminal.print(
            f"{other['threads']} threads against {first['threads']}: "
            f"{first['seconds'] / other['seconds']:.2f} times as fast",
            highlight=False,
        )
    terminal.print(f"traces (open in Perfetto) and summary.json are in {out}", highlight=False)


def _workers(summary: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(
        title=f"{summary['threads']} threads: {_ms(summary['seconds'])} an update, "
        f"{summary['tasks']} tasks, {summary['updates']} updates recorded",
        title_justify="left",
    )
    for name in ("worker", "busy", "idle", "tasks", "steals", "failed", "parked"):
        table.add_column(name, justify="right")
    for number, worker in enumerate(summary["workers"]):
        table.add_row(
            str(number),
            f"{worker['busy']:.1%}",
            f"{max(0.0, 1 - worker['busy']):.1%}",
            str(worker["tasks"]),
            str(worker["steals"]),
            str(worker["failed_steals"]),
            str(worker["parks"]),
        )
    return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
