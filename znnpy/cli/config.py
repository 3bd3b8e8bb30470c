"""The commands `znnpy check`, `znnpy init` and `znnpy schema`."""

from __future__ import annotations

import json
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from znnpy.cli.global_options import global_options, suggest
from znnpy.cli.module_loading import loading
from znnpy.cli.options import (
    AsJson,
    ConfigFile,
    MaxMemory,
    Overrides,
    SavePlan,
    Threads,
    new_path,
    overrides,
)
from znnpy.cli.preconditions import refuse_ranks
from znnpy.train.recipes import RECIPES

if TYPE_CHECKING:
    from znnpy.config import Config
    from znnpy.train.recipe_sections import Seen
    from znnpy.train.recipes import Recipe

SCHEMA_FILE = "znnpy.schema.json"
SCHEMA_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE}"


def check(
    config: ConfigFile,
    as_json: AsJson = False,
    set_: Overrides = None,
    threads: Threads = None,
    max_memory: MaxMemory = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Measure algorithms that this machine has not measured yet."
        ),
    ] = False,
    save_plan: SavePlan = None,
) -> None:
    """Check a config without training: volumes, layers, shapes, algorithms, memory and time per update.

    Algorithms are those that training would choose if this machine has measured them before, else estimates, from
    which training may differ. Under mpiexec or srun every rank checks, and rank 0 prints.
    """
    with loading():
        from znnpy.cli.config_of_ranks import config_of_ranks
        from znnpy.cli.config_summary import summarise
        from znnpy.cli.summary_tables import print_summary
        from znnpy.distributed.rendezvous import joined

    changed = overrides(set_, threads, max_memory)
    with joined(debug=global_options().verbose) as world:
        loaded, first = config_of_ranks(config, changed, world), world.rank == 0
        if world.size > 1:
            from znnpy.train.consensus import refuse_split_statistics
            from znnpy.train.environment import member, share_host

            refuse_split_statistics(loaded, world.size)
            share_host(world.exchange(member()), world.rank)
        found = summarise(loaded, measure=first and (measure or save_plan is not None))
        if save_plan is not None and first:
            write_plan(loaded, save_plan)
    if not first:
        return
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        print_summary(found)
        if loaded.data is not None and loaded.data.train:
            suggest("train", config, *(word for it in changed for word in ("--set", it)))


def write_plan(config: Config, path: Path) -> None:
    """Write the plan of a config's updates for `training.plan`; measures layers that are not in wisdom."""
    from znnpy.atomic_files import write_text
    from znnpy.engine.autotune import planned
    from znnpy.engine.layers.optimizer import Optimizer
    from znnpy.engine.memory.layout import Layout
    from znnpy.engine.memory_planning import planned_memory
    from znnpy.engine.step_tasks import Settings
    from znnpy.geometry import trained_geometry
    from znnpy.infer.plan_limits import pinned_plan, plan_room
    from znnpy.network import trained_network, training_losses
    from znnpy.plan.record import saved_plan, to_text

    training = config.training
    network = trained_network(config)
    geometry = trained_geometry(config, network)
    known = pinned_plan(config, network)
    sizes = network, geometry, training.at_once
    with plan_room(config, network) as most:
        plan = planned(*sizes, training.conv, known, max_memory=most)
    layout = Layout(network, geometry, plan, training.at_once, True, training.seed, 1)
    losses = training_losses(config, network)
    optimizer = Optimizer.trained(training)
    planned_memory(layout, Settings(losses, optimizer, training.clip_norm, 1))  # plans FFTs
    write_text(path, to_text(saved_plan(plan)))


def purposes() -> str:
    """Return the help of --for: what each recipe is for."""
    each = "; ".join(f"{recipe.name}: {recipe.summary}" for recipe in RECIPES.values())
    return f"Write a whole config for a purpose instead of every key. {each}."


def init(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", parser=new_path, help="File to write (default: stdout)."),
    ] = None,
    purpose: Annotated[
        Literal[*RECIPES] | None,  # type: ignore[valid-type]  # plug-ins may have added theirs
        typer.Option("--for", help=purposes()),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:DATASET]", help="With --for: the image to train on, which is looked at."
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:DATASET]", help="With --data: its labels (default: in the same file)."
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=0.1,
            max=100_000,
            help="With --data: as many updates as train about so long on this machine, by the time of a few of them "
            "(default: as many as the recipe has).",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
) -> None:
    """Write a config to start from, and beside it the schema by which editors complete and check it.

    By itself a commented one of every key. --for writes one for a purpose, fitted to --data: its size, voxels and
    labels, and this machine; --minutes says how long it is to train.
    """
    from znnpy.atomic_files import write_texts
    from znnpy.config import template
    from znnpy.errors import ConfigError

    refuse_ranks("init")
    if purpose is None and (data or labels):
        raise typer.BadParameter("--data and --labels go with --for")
    if data is None and (labels or minutes is not None):
        raise typer.BadParameter(f"{'--labels' if labels else '--minutes'} goes with --data")
    if path is not None and (path.is_dir() or _is_volume(path)):
        raise ConfigError(
            f"{path} is {'a folder' if path.is_dir() else 'an image by its name'}, and a config is to be written; for "
            f"one that is fitted to images: znnpy init config.yaml --for {purpose or 'membranes'} --data {path}"
        )
    if path is not None and path.exists() and not overwrite:
        raise ConfigError(f"{path} exists already; name another file, or add --overwrite")
    text = template() if purpose is None else _recipe(purpose, path, data, labels, minutes)
    if path is None:
        typer.echo(text, nl=False)
        return
    written = Path(realpath(path))  # a link stays one
    texts, beside = {written: f"{SCHEMA_LINE}\n{text}"}, written.parent / SCHEMA_FILE
    if overwrite or not beside.exists():
        texts[beside] = _schema()
    write_texts(texts)
    mine = "" if data else ", whose data and network are to be made yours,"
    typer.echo(f"wrote {path}{mine} and {SCHEMA_FILE} for editors", err=True)
    suggest("check", path)


def _is_volume(path: Path) -> bool:
    from znnpy.data.writing.output_format import by_suffix
    from znnpy.volume_sets import PLANES, VOLUMES

    return by_suffix(path) is not None or path.name.lower().endswith((*VOLUMES, *PLANES))


def _recipe(
    purpose: str, path: Path | None, data: str | None, labels: str | None, minutes: float | None
) -> str:
    from dataclasses import replace

    from znnpy.dataset_path import split_source
    from znnpy.train.seen_data import look_at, look_at_set, named_from, of_machine
    from znnpy.volume_sets import is_set

    recipe = RECIPES[purpose]
    if data is None:
        return recipe.text(of_machine())
    file, _ = split_source(data)
    truth_file = split_source(labels)[0] if labels else file
    look = look_at_set if is_set(file) or is_set(truth_file) else look_at
    seen = look(recipe, data, labels or str(file))
    if recipe.name == "semantic" and seen.remark:
        typer.echo(seen.remark, err=True)
    folder = Path.cwd()
    if path is not None:
        folder = Path(realpath(path)).parent
        image, truth = (named_from(folder, source) for source in (seen.image, seen.labels))
        seen = replace(seen, image=image, labels=truth)
    return recipe.text(seen if minutes is None else _fitted(recipe, seen, folder, minutes))


def _fitted(recipe: Recipe, seen: Seen, folder: Path, minutes: float) -> Seen:
    """Return what is known of the data, with as many updates as train so long here; says so."""
    from dataclasses import replace

    from znnpy.config import config_from_text
    from znnpy.errors import ConfigError
    from znnpy.train.fitted_length import fitting, seconds_of_update
    from znnpy.train.progress import choose_reporter

    config = config_from_text(recipe.text(seen), folder)
    reporter = choose_reporter(quiet=global_options().quiet)
    seconds = seconds_of_update(config, reporter)
    updates = fitting(config, minutes, seconds, seen.extent)
    unit = "minute" if minutes == 1 else "minutes"
    words = f"about {minutes:g} {unit} here, at {1 / seconds:.3g} updates/s"
    found = replace(seen, updates=(updates, words))
    if config_from_text(recipe.text(found), folder).training.iterations != updates:
        raise ConfigError(
            f"--for {recipe.name} writes a number of updates of its own; leave out --minutes"
        )
    typer.echo(f"{updates:,} updates: {words}", err=True)
    return found


def schema() -> None:
    """Print the JSON schema of configs, for editors."""
    typer.echo(_schema(), nl=False)


def _schema() -> str:
    from znnpy.config import json_schema

    return json.dumps(json_schema(), indent=2) + "\n"
