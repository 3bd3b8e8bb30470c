"""The command `znnpy train`."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from znnpy.cli.global_options import global_options
from znnpy.cli.module_loading import loading
from znnpy.cli.next_prediction import suggest_predict
from znnpy.cli.options import ConfigFile, MaxMemory, Overrides, Threads, new_path, overrides


def train(
    config: ConfigFile,
    set_: Overrides = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            parser=new_path,
            help="Run directory, in place of the config's run.directory.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start anew; removes the existing run.")
    ] = False,
    threads: Threads = None,
    max_memory: MaxMemory = None,
    different_cpus: Annotated[
        bool,
        typer.Option(
            "--allow-different-cpus",
            help="Train on ranks whose CPUs round differently: not bitwise repeatable.",
        ),
    ] = False,
) -> None:
    """Train a network, or resume a run that was stopped.

    Ctrl-C finishes the step, saves and stops; the same command resumes, bit by bit as if it had
    never stopped. Ends with scores on the test volume. Under mpiexec or srun all ranks train together (data parallel).
    """
    from znnpy.distributed.rendezvous import joined

    changed = overrides(set_, threads, max_memory)
    if output is not None:
        changed.append(f"run.directory={json.dumps(str(output))}")
    with joined(debug=global_options().verbose) as world:
        # When ranks have met: they wait for each other.
        with loading():
            from znnpy.cli.config_of_ranks import config_of_ranks
            from znnpy.train.progress import choose_reporter
            from znnpy.train.session import train as run
            from znnpy.train.worker_rank import follow

        loaded = config_of_ranks(config, changed, world)
        if world.rank:
            signal = follow(world)
        else:
            reporter = choose_reporter(quiet=global_options().quiet)
            outcome = run(
                loaded,
                overwrite=overwrite,
                reporter=reporter,
                world=world,
                different_cpus=different_cpus,
            )
    if world.rank:
        raise typer.Exit(128 + signal if signal else 0)
    if outcome.signal is not None:
        with suppress(OSError):  # the terminal may be closed
            typer.echo(
                f"stopped at iteration {outcome.iteration} of {outcome.iterations}, saved in "
                f"{outcome.directory}; go on with: {_again(config, changed)}",
                err=True,
            )
        raise typer.Exit(128 + outcome.signal)
    _report(outcome)


def _again(config: Path, changed: list[str]) -> str:
    """Return the command that resumes, for a shell; without --overwrite."""
    sets = [word for change in changed for word in ("--set", change)]
    return shlex.join(["znnpy", "train", str(config), *sets])


def _report(outcome: object) -> None:
    from znnpy.cli.tables import print_evaluations
    from znnpy.train.final_evaluation import is_drawn
    from znnpy.train.run_directory import PAGE, PICTURE
    from znnpy.train.session import Outcome

    assert isinstance(outcome, Outcome)
    print_evaluations(list(outcome.evaluations))
    if outcome.evaluations and is_drawn(outcome.evaluations[0]):
        typer.echo(f"picture: {outcome.directory / PICTURE}")
    if (outcome.directory / PAGE).exists():
        typer.echo(f"page: {outcome.directory / PAGE}")
    typer.echo(f"run directory: {outcome.directory}")
    suggest_predict(outcome.directory)
