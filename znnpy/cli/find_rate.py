"""The command `znnpy find-rate`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from znnpy.cli.global_options import global_options, suggest
from znnpy.cli.module_loading import loading
from znnpy.cli.options import ConfigFile, MaxMemory, Overrides, Threads, new_path, overrides
from znnpy.cli.preconditions import refuse_ranks

if TYPE_CHECKING:
    from znnpy.train.rate_range import RangeTest

SUFFIXES = (".html", ".png", ".json")
LARGEST = 1e6  # beyond any rate that weights survive
SMALLEST = 1e-12


def find_rate(
    config: ConfigFile,
    set_: Overrides = None,
    lowest: Annotated[
        float,
        typer.Option("--from", metavar="RATE", help="Learning rate of the first update."),
    ] = 1e-6,
    highest: Annotated[
        float, typer.Option("--to", metavar="RATE", help="Learning rate of the last update.")
    ] = 10.0,
    updates: Annotated[
        int,
        typer.Option("--updates", metavar="N", min=10, max=100_000, help="Number of updates."),
    ] = 200,
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE.html|FILE.png|FILE.json",
            parser=new_path,
            help="File to write (default: find-rate.html).",
        ),
    ] = Path("find-rate.html"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    threads: Threads = None,
    max_memory: MaxMemory = None,
) -> None:
    """Find a learning rate: train while it rises geometrically until the loss diverges, and suggest one.

    The suggested rate is that where the smoothed loss falls fastest, at most a tenth of that of divergence. Nothing is
    kept but the file with loss over rate; a run of the config stays as it is.
    """
    from znnpy.errors import RunError

    refuse_ranks("find-rate")
    _refuse_rates(lowest, highest)
    if output.suffix.lower() not in SUFFIXES:
        raise typer.BadParameter(
            f"must end in .html, .png or .json; found {str(output)!r}", param_hint="--output"
        )
    if output.exists() and not overwrite:
        raise RunError(f"{output} exists already; name another file, or add --overwrite")
    if not output.parent.is_dir():
        raise RunError(f"{output.parent} is no folder; --output names a file in one that exists")

    with loading():
        from znnpy.config import load_config
        from znnpy.train.progress import choose_reporter
        from znnpy.train.rate_range import range_test, rising

    changed = overrides(set_, threads, max_memory)
    loaded, reporter = load_config(config, changed), choose_reporter(quiet=global_options().quiet)
    found = range_test(loaded, rising(lowest, highest, updates), reporter)
    if found.signal is not None:
        with suppress(OSError):  # the terminal may be closed
            done = len(found.losses)
            typer.echo(f"stopped after {done} of {updates} updates; nothing is written", err=True)
        raise typer.Exit(128 + found.signal)
    _write(output, found)
    _report(config, changed, output, found, loaded.training.scale_of_rate)


def _refuse_rates(lowest: float, highest: float) -> None:
    # The comparisons are false for NaN.
    for option, rate in (("--from", lowest), ("--to", highest)):
        if not SMALLEST <= rate <= LARGEST:
            raise typer.BadParameter(
                f"must lie in {SMALLEST:g} .. {LARGEST:g}; found {rate:g}", param_hint=option
            )
    if highest < 10 * lowest:
        raise typer.BadParameter(
            f"must be at least ten times --from, which is {lowest:g}; found {highest:g}",
            param_hint="--to",
        )


def _write(output: Path, found: RangeTest) -> None:
    from znnpy.train.display.rate_curve import write_html, write_json, write_png

    writers = {".html": write_html, ".png": write_png, ".json": write_json}
    writers[output.suffix.lower()](output, found)


def _report(config: Path, changed: list[str], output: Path, found: RangeTest, scale: float) -> None:
    from znnpy.train.display.rate_curve import described

    typer.echo(described(found))
    typer.echo(str(output))
    rate = found.suggestion.rate
    # A rate that was set for the test would stand in the way of the one that it found.
    kept = [it for it in changed if not (rate and it.split("=")[0] == "training.learning_rate")]
    if rate is not None:
        # What the config multiplies for its batch was measured as it is.
        kept.append(f"training.learning_rate={rate / scale:.2g}")
        if scale != 1:
            typer.echo(
                f"as training.base_batch multiplies the rate by {scale:g}: "
                f"training.learning_rate {rate / scale:.2g}"
            )
    suggest("train" if rate else "check", config, *(word for it in kept for word in ("--set", it)))
