"""The command `znnpy predict`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from znnpy.cli.each_case import each_case
from znnpy.cli.global_options import global_options, note, shown_labels, suggest
from znnpy.cli.module_loading import loading
from znnpy.cli.options import (
    SIZES,
    CheckpointName,
    MaxMemory,
    Overrides,
    ReplaceNonfinite,
    RunPath,
    Threads,
    block_sizes,
    overrides,
    replacing,
    which_checkpoint,
)
from znnpy.cli.preconditions import refuse_ranks
from znnpy.cli.predict_request import attributes_of, output_node, region_of, request_for, section_of
from znnpy.cli.predict_scans import predict_scans, refused, scan_run
from znnpy.cli.predict_sets import Case, cases_of, images_of, not_written
from znnpy.dataset_path import LABEL_NAMES

if TYPE_CHECKING:
    from znnpy.config.models import VolumeSection
    from znnpy.data.writing.destination import Destination
    from znnpy.infer.job import Job
    from znnpy.infer.request import Request
    from znnpy.train.start import SavedRun

DATASET = "prediction"
SEAMS = 20  # places that --verify-seams alone stands for


def predict(
    run: RunPath,
    input_: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="[NODE=]FILE[:DATASET]",
            help="Image to predict on, or a folder or pattern of images, each by itself; once for each input of the "
            "network. Of a run of scans (data.prepare): once for each channel, or a folder of cases.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            metavar="FILE[:DATASET]",
            help="HDF5 file, OME-Zarr, N5 or precomputed folder (.zarr, .n5, .precomputed) or image (.nii.gz, .nrrd, "
            ".mha, .mrc, .tif) to write; for a folder of cases, a folder. Folders of chunks also at s3:// and gs://.",
        ),
    ],
    node: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Output node to write, when there are several."),
    ] = None,
    roi: Annotated[
        str | None,
        typer.Option(
            metavar="Z0:Z1,Y0:Y1,X0:X1", help="Voxels of the input to predict (default: all)."
        ),
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:DATASET]", help="Voxels to predict (not 0); all others become 0."
        ),
    ] = None,
    block: Annotated[
        str | None, typer.Option(metavar=SIZES, help="Voxels written at once (default: chosen).")
    ] = None,
    patch: Annotated[
        str | None,
        typer.Option(metavar=SIZES, help="Output voxels of one network run (default: the best)."),
    ] = None,
    borders: Annotated[
        Literal["valid", "mirror"] | None,
        typer.Option(
            "--borders",
            "--border",
            help="valid: only voxels that see no border; mirror: all (default: as trained).",
        ),
    ] = None,
    logits: Annotated[
        bool,
        typer.Option("--logits", help="Write logits: values before the logistic or softmax."),
    ] = False,
    dtype: Annotated[
        Literal["float32", "uint8"],
        typer.Option(help="Type of the values; uint8: 0..255 for 0..1, rounded."),
    ] = "float32",
    labels: Annotated[
        bool,
        typer.Option(
            "--labels",
            help="Write the number of the largest channel of each voxel (of one channel: 1 above a half), uint8 or "
            "uint16, and no values.",
        ),
    ] = False,
    augment: Annotated[
        Literal["flips", "none"] | None,
        typer.Option(
            help="Test-time augmentation; flips: mean over all mirror images of the input; none: not even those that a "
            "run of scans takes by default."
        ),
    ] = None,
    grid: Annotated[
        bool,
        typer.Option(
            "--grid", help="With true strides: predict only the network's own grid, not all voxels."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and write nothing.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is at the output.")
    ] = False,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS|local:N",
            help="Predict by the workers of a dask scheduler, or by N processes of this machine.",
        ),
    ] = None,
    verify_seams: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="[N]",
            help=f"Afterwards, check for seams at N places on borders of blocks (default: {SEAMS}).",
        ),
    ] = 0,
    checkpoint: CheckpointName = "latest",
    replace_nonfinite: ReplaceNonfinite = False,
    set_: Overrides = None,
    threads: Threads = None,
    max_memory: MaxMemory = None,
) -> None:
    """Predict a whole volume patch by patch, each with its real surroundings (halo).

    Writes float32 probabilities (channel, z, y, x), or with --labels class numbers (z, y, x). The
    values do not depend on blocks, threads or interruptions; with another patch they differ by
    rounding, so a run remembers its patch for each stack, and a note says when a memory limit needs
    another. If stopped, the same command resumes. A run that prepares its scans (data.prepare), such as
    one imported from nnU-Net, writes labels in the scans' own voxels.
    """
    which = which_checkpoint(checkpoint)
    with loading():
        from znnpy.train.checkpoint import look_ahead

        # First, as the rest takes a second, in which large weights are read through.
        ahead = look_ahead(run, which)
        from znnpy.infer.memory import local_processes
        from znnpy.interop.run import run_of
        from znnpy.scheduler.core_count import available_cores
        from znnpy.train.progress import Plain
        from znnpy.train.signals import StopSignals
        from znnpy.train.start import read_run

    refuse_ranks(
        "predict",
        "--dask local:4 predicts by 4 processes of this machine, --dask ADDRESS by the workers of a cluster",
    )
    if logits and dtype == "uint8":
        raise typer.BadParameter("--logits cannot be written as uint8")
    if labels and (logits or dtype == "uint8" or verify_seams):
        raise typer.BadParameter("--labels goes without --logits, --dtype and --verify-seams")
    processes = local_processes(dask)
    if processes > 1 and threads is None:
        threads = max(1, available_cores() // processes)
    changed = overrides(set_, threads, max_memory) + replacing(replace_nonfinite)
    changed += [f"data.border={borders}"] if borders else []
    with run_of(run) as path:
        saved = read_run(path, Plain(), changed, which, states=False, in_file=True, ahead=ahead)
        if saved.config.data.prepare is not None:
            refused(
                {
                    "--node": node is not None,
                    "--roi": roi is not None,
                    "--mask": mask is not None,
                    "--block": block is not None,
                    "--patch": patch is not None,
                    "--borders": borders is not None,
                    "--dtype": dtype == "uint8",
                    "--grid": grid,
                    "--dask": dask is not None,
                    "--dry-run": dry_run,
                    "--verify-seams": verify_seams > 0,
                }
            )
            scans = scan_run(saved, flips=augment != "none")
            del saved  # whose weights would stay in memory
            with StopSignals():
                predict_scans(scans, input_, output, logits=logits, overwrite=overwrite)
            return
    sizes = {
        "roi": region_of(roi),
        "block": block_sizes(block),
        "patch": block_sizes(patch, "--patch"),
    }
    changes: dict[str, Any] = {
        **sizes,
        "logits": logits,
        "flips": augment == "flips",
        "grid": grid,
        "processes": processes,
    }
    # Numbers of classes may take two bytes, which formats hold that hold one.
    kind, channels = (
        ("uint8", 1) if labels else (dtype, output_node(saved.weights.network, node).channels)
    )
    cases = cases_of(images_of(saved.network, input_), mask, output, kind, channels)
    several = len(cases) > 1 or cases[0].output != output
    usual = LABEL_NAMES[0] if labels else DATASET
    left = not_written(cases, usual, overwrite, several=several, dry_run=dry_run)

    def predicted(it: tuple[Case, Destination]) -> None:
        case, destination = it
        section = section_of(saved.network, case)
        request = replace(request_for(saved, section, node, dtype, labels), **changes)
        if not (dry_run and several):  # which does not make their folder
            _refuse_output(destination, dry_run)
        _predict(saved, section, request, destination, dry_run, verify_seams, dask)

    with StopSignals():
        each_case(left, predicted, lambda it: next(iter(it[0].images.values())), several=several)
    if left and not dry_run:
        _suggest(saved, output_node(saved.weights.network, node).name, left[0][1], labels=labels)


def _refuse_output(destination: Destination, dry_run: bool) -> None:
    from znnpy.data.writing.preflight import refuse_output

    refuse_output(replace(destination, overwrite=destination.overwrite or dry_run))


def spelled_out(words: Sequence[str]) -> list[str]:
    """Return a command line in which every --verify-seams has its number."""
    made = []
    for word, after in zip(words, [*words[1:], ""], strict=False):
        made.append(word)
        if word == "--verify-seams" and not after.lstrip("-").isdigit():
            made.append(str(SEAMS))
    return made


def _predict(
    saved: SavedRun,
    section: VolumeSection,
    request: Request,
    destination: Destination,
    dry_run: bool,
    seams: int,
    dask: str | None,
) -> None:
    from znnpy.cli.prediction_display import nothing_wanted, print_job
    from znnpy.data.config_volumes import open_inputs
    from znnpy.data.writing.preflight import refuse_loss
    from znnpy.infer.job import plan_job
    from znnpy.train.known_volumes import other_voxels
    from znnpy.train.run_directory import remember, remembered

    weights = saved.weights
    scene = open_inputs(section, saved.config.data, weights.network)
    try:
        refuse_loss(destination, scene.volumes())
        patches = remembered(saved.path, note)
        job = plan_job(
            weights,
            scene,
            request,
            destination.path,
            attributes_of(saved, request.node.name),
            patches,
        )
        other = other_voxels(saved.path, scene)
        for text in filter(None, (*job.notes, nothing_wanted(job), other)):
            note(text)
        if dry_run:
            print_job(job, destination)
            return
        if job.usual:
            remember(saved.path, job.usual, note)
        _write(job, section, destination, dask)
        if seams:
            _verify(job, destination, seams)
    finally:
        scene.close()


def _suggest(saved: SavedRun, output: str, destination: Destination, *, labels: bool) -> None:
    """Suggest `segment` for predictions that show objects or classes, `view` for all others."""
    from znnpy.learning.readings import CLASSES
    from znnpy.network import training_losses
    from znnpy.registry import resolved

    target = saved.config.target(output)
    # Files that keep no offsets do not show that they hold affinities, nor number others their classes.
    told = getattr(resolved(destination.format.blocks), "KEEPS_MEANING", False)
    affinities = () if told else ("--kind", "affinity")
    reading = training_losses(saved.config, saved.weights.network)[output].reading
    ways: dict[str, tuple[str, ...]] = {
        "boundary": (),
        "affinity": affinities,
        "mask": ("--kind", "foreground"),
    }
    if target.kind == "labels" and reading is CLASSES:
        ways["labels"] = (
            "--method",
            "classes",
            *(("--first", str(target.first)) if target.first and not told else ()),
        )
    if target.kind not in ways or labels:
        suggest("view", shown_labels(destination) if labels else destination.name)
    else:
        suggest("segment", destination.name, "--output", "objects.h5", *ways[target.kind])


def _write(job: Job, section: VolumeSection, destination: Destination, dask: str | None) -> None:
    from znnpy.infer.block_writer import run_job
    from znnpy.infer.blocks_bar import BlocksBar
    from znnpy.infer.dask_cluster import cluster, risk

    if dask is not None and (words := risk(dask)):
        typer.echo(f"warning: {words}", err=True)
    with BlocksBar("predicting", quiet=global_options().quiet) as bar:
        if dask is None:
            run_job(job, destination, bar.show, bar.prepare)
        else:
            from znnpy.infer.dask_prediction import run_distributed

            with cluster(dask) as client:
                run_distributed(client, job, section, destination, bar.show)
    spec = job.spec
    shape = f"{spec.shape} (c, z, y, x)" if spec.channels else f"{spec.shape[1:]} (z, y, x)"
    typer.echo(f"{destination.name}  {shape}")


def _verify(job: Job, destination: Destination, count: int) -> None:
    from znnpy.errors import VolumeError
    from znnpy.infer.blocks_bar import BlocksBar
    from znnpy.infer.seams import verify_seams

    with BlocksBar("checking", quiet=global_options().quiet) as bar:
        found = verify_seams(job, destination, count, bar.prepare)
    words = (
        f"{found.places} places on borders computed again: largest difference {found.largest:.2g}"
    )
    typer.echo(f"{words} (up to {found.allowed:.2g} is rounding)")
    if found.found:
        where = f"near voxel {found.where} (z, y, x)"
        raise VolumeError(f"{destination.name} has a seam {where}")
