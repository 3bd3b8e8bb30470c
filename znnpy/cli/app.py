"""All commands, and how they end: exit status 0 done, 1 error, 2 wrong usage, 128 + n stopped by signal n."""

from __future__ import annotations

import atexit
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from copy import copy
from functools import cache
from typing import Annotated, Any

import typer

import znnpy
from znnpy import plugins
from znnpy.cli import (
    config,
    evaluate,
    export,
    find_rate,
    import_,
    plot,
    predict,
    profile,
    score,
    segment,
    train,
    version,
    view,
)
from znnpy.cli.global_options import GlobalOptions, adopt, global_options, without
from znnpy.cli.preconditions import refuse_little_memory
from znnpy.distributed.launcher import announced, announced_rank
from znnpy.errors import WaitWarning, screenful, told

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train and run 3-D convolutional networks on many-core CPUs.",
)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("evaluate")(evaluate.evaluate)
app.command("segment")(segment.segment)
app.command("score")(score.score)
app.command("view")(view.view)
app.command("find-rate")(find_rate.find_rate)
app.command("plot")(plot.plot)
app.command("import")(import_.import_)
app.command("export")(export.export)
app.command("profile")(profile.profile)
app.command("check")(config.check)
app.command("init")(config.init)
app.command("schema")(config.schema)
app.command("version")(version.show_version)

BROKEN = re.compile(r"(?<!\n)\n(?!\n)")  # a line of a docstring ends, but no paragraph


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"znnpy {znnpy.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    short: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            "--debug",
            help="Show where errors and warnings come from (anywhere in the line).",
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Show neither progress nor the next command (anywhere in the line).",
        ),
    ] = False,
) -> None:
    """Define the options of all commands; --verbose and --quiet are removed from the line before it is parsed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process. An error is one message on stderr."""
    line = list(sys.argv[1:] if arguments is None else arguments)
    wanted = GlobalOptions.of(line)
    adopt(wanted)
    words = predict.spelled_out(without(line))
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # its fonts and folders are its affair
    os.environ["MPLBACKEND"] = "agg"  # pictures are written: what shows a notebook's may be missing
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # what matters becomes an error
    for stream in (sys.stdout, sys.stderr):  # names of files may be no text, and terminals ASCII
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _warn
    try:
        _run(words, wanted)
    except SystemExit as end:
        if arguments is None and (end.code is None or isinstance(end.code, int)):
            _leave(end.code or 0)
        raise
    except Exception as error:
        if wanted.verbose:
            raise
        _complain(told(error))
        sys.exit(1)
    except BaseException as error:
        number = getattr(error, "signal", None)  # Stopped; its module is not imported for others
        if number is None or wanted.verbose:
            raise
        _complain(f"{error}; run the same command again to go on")
        sys.stdout.flush()
        os._exit(128 + number)  # worker threads and compilers may still be busy


def _run(words: Sequence[str], wanted: GlobalOptions) -> None:
    """Run a command. Of several ranks rank 0 alone prints; an error before they have met ends all of them."""
    speaks = announced_rank() == 0
    try:
        refuse_little_memory()
        plugins.load()
        with nullcontext() if speaks else redirect_stdout(io.StringIO()):
            sys.exit(_commands(*words[:1])(words, prog_name="znnpy", standalone_mode=speaks))
    except (Exception, SystemExit) as error:
        if announced() != 1:
            from znnpy.distributed.rendezvous import end_together

            end_together(error, debug=wanted.verbose)
        raise


def _leave(code: int) -> None:
    """End the process without destroying what it holds, which takes a quarter of a second.

    Returns when the output cannot be flushed, for the usual way to report that; and with several ranks, whose
    launcher learns of a good end from MPI's library at the very last, and else kills all.
    """
    if announced() != 1:
        return
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        with suppress(OSError):  # what it says would go there
            sys.stderr.flush()
        os._exit(code)


@cache
def _commands(wanted: str = "") -> Any:
    """Return the commands, or, of these, the one that is `wanted`: to make all of them takes as long as to load many.

    Without types of arguments and flags in their help, which say nothing.
    """
    asked = copy(app)
    asked.registered_commands = [
        it for it in app.registered_commands if it.name == wanted
    ] or app.registered_commands
    made: Any = typer.main.get_command(asked)
    for command in (made, *made.commands.values()):
        command.help = BROKEN.sub(" ", command.help or "")
        for param in command.get_params(typer.Context(command)):
            param.process_value = _plainly(param.process_value)
            if param.param_type_name == "argument" or getattr(param, "is_flag", False):
                param.display_type_rich = lambda ctx: None
    return made


def _plainly(convert: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a conversion of what is typed whose errors begin with what is wrong, not with their class."""

    def converted(context: Any, value: Any) -> Any:
        try:
            return convert(context, value)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

    return converted


def _warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print a warning on one line, with its place in the code if asked for; of other ranks only that they wait."""
    rank = announced_rank()  # ranks look at the same files
    if rank == 0 or issubclass(category, WaitWarning):
        place = f" ({filename}:{lineno})" if global_options().verbose else ""
        _complain(f"warning: {f'rank {rank} ' if rank else ''}{message}{place}")


def _complain(text: str) -> None:
    with suppress(OSError):  # the terminal may be closed; the exit status says it too
        # With its newline in one call, or another rank's words may stand between.
        sys.stderr.write(f"znnpy: {screenful(text)}\n")
        sys.stderr.flush()
