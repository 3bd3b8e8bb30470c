"""A run from a Python session: `znnpy.open_run` and what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from znnpy.config import Config
from znnpy.data.scene import Scene
from znnpy.data.volume import Array, Triple64
from znnpy.errors import ArgumentError, ConfigError
from znnpy.evaluation.scores import Objects as Settings
from znnpy.fields import shown
from znnpy.infer.in_memory import predict_array
from znnpy.infer.job import Job, plan_job
from znnpy.infer.request import Request, request_of
from znnpy.interactive import html
from znnpy.interactive.evaluations import Evaluations
from znnpy.interactive.numbers import count_of, distance_of, probability_of
from znnpy.interactive.progress import blocks_here
from znnpy.interactive.scenes import inputs_of, labelled_of
from znnpy.interactive.sources import Image, Images
from znnpy.network.types import Network, Node
from znnpy.train.display.comparison import compare, figure_of_runs
from znnpy.train.final_evaluation import evaluate_run, evaluate_scenes, held_out, why_none
from znnpy.train.known_volumes import other_voxels
from znnpy.train.log import Record, up_to
from znnpy.train.progress import Notes
from znnpy.train.run_directory import LOG, remember, remembered
from znnpy.train.start import SavedRun, Which, read_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTES = Notes()


class Run:
    """A run of `znnpy train`, as one of its checkpoints has it: predicts, evaluates, and shows itself in a notebook."""

    def __init__(self, saved: SavedRun) -> None:
        self._saved = saved

    @property
    def path(self) -> Path:
        """The run's directory."""
        return self._saved.path

    @property
    def config(self) -> Config:
        """The config that it was trained with."""
        return self._saved.config

    @property
    def iteration(self) -> int:
        """The number of updates that its weights have seen."""
        return self._saved.checkpoint.iteration

    @property
    def parameters(self) -> Mapping[str, Array]:
        """The weights that predictions are made with, by name; filters are (out, in, z, y, x)."""
        return self._saved.weights.parameters

    def __repr__(self) -> str:
        total = self.config.training.iterations
        return f"run {self.path}, iteration {self.iteration:,} of {total:,}"

    def predict(
        self,
        image: Images,
        *,
        mask: Image | None = None,
        node: str | None = None,
        borders: Literal["valid", "mirror"] | None = None,
        labels: bool = False,
        logits: bool = False,
        flips: bool = False,
        resolution: Triple64 | None = None,
        quiet: bool = False,
    ) -> Array:
        """Predict a whole image, voxel by voxel as `znnpy predict` does; returns an array.

        `image`: (z, y, x) or (channel, z, y, x), an array, `FILE:DATASET` or an open volume; of several inputs such
        by node. Returns float32 probabilities (channel, z, y, x); with `logits` values before the logistic or softmax;
        with `labels` the number of the largest channel (z, y, x), uint8 or uint16. `borders` valid: only voxels that
        see no border, so that less comes back than was given; mirror: all of them; None: as trained. `flips`: the
        mean over all mirror images. `mask`: voxels to predict, all others become 0. `node`: which output, where there
        are several. `resolution` (z, y, x, nanometres): the voxels of an array. Raises ZnnpyError and its kin
        for what the command refuses.
        """
        saved = self._saved
        if saved.config.data.prepare is not None:
            raise ConfigError(
                f"{saved.path} prepares its scans (data.prepare), whose labels are written whole: `znnpy predict`"
            )
        if labels and logits:
            raise ArgumentError("labels: goes without logits")
        network = saved.weights.network
        wanted = request_of(_bordered(saved.config, borders), _output(network, node), labels=labels)
        wanted = replace(wanted, logits=logits, flips=flips)
        with ExitStack() as stack:
            scene = inputs_of(saved, image, mask, stack, resolution)
            job = self._planned(scene, wanted, borders)
            bar = stack.enter_context(blocks_here(quiet=quiet))
            found = predict_array(job, bar.show, bar.prepare)
            scene.verify()
        return found

    def evaluate(
        self,
        image: Images | None = None,
        labels: Images | None = None,
        *,
        mask: Images | None = None,
        threshold: float | None = None,
        min_size: int = 0,
        grow: float = 0.0,
        resolution: Triple64 | None = None,
    ) -> Evaluations:
        """Score the weights on a labelled volume, by default those of data.test, as `znnpy evaluate` does.

        `image` and `labels`: (z, y, x) or with channels before, arrays, `FILE:DATASET` or open volumes. `threshold`,
        `min_size` and `grow`: of objects, as the command's. Returns an evaluation for each volume and output; a table
        and a picture in a notebook. Raises VolumeError where there are no labels, or none that count.
        """
        settings = Settings(
            None if threshold is None else probability_of("threshold", threshold),
            count_of("min_size", min_size),
            distance_of("grow", grow),
        )
        if (image is None) != (labels is None):
            raise ArgumentError("image and labels go together")
        if image is None or labels is None:
            sections = held_out(self.config)
            if not sections:
                raise ConfigError(
                    f"nothing to evaluate on: {why_none(self.config)}; give an image and its labels"
                )
            return Evaluations(evaluate_run(self._saved, sections, settings))
        with ExitStack() as stack:
            scene = labelled_of(self._saved, image, labels, mask, stack, resolution)
            return Evaluations(evaluate_scenes(self._saved, [scene], settings))

    def _planned(self, scene: Scene, request: Request, borders: str | None) -> Job:
        saved = self._saved
        weights = replace(saved.weights, config=_bordered(saved.config, borders))
        patches = remembered(saved.path, NOTES.note)
        job = plan_job(weights, scene, request, None, patches=patches)
        for note in filter(None, (*job.notes, other_voxels(saved.path, scene))):
            NOTES.note(f"note: {note}")
        if job.usual:
            remember(saved.path, job.usual, NOTES.note)
        return job

    @property
    def log(self) -> list[Record]:
        """The records of its log.jsonl up to its iteration: losses, learning rates, validations."""
        return list(up_to(self.path / LOG, self.iteration))

    def figure(self) -> Figure:
        """Return a figure of matplotlib of its losses, validation scores, learning rate and speed over iterations.

        Raises RunError where there is no update in its log, as of a run that was imported.
        """
        return figure_of_runs(compare([self.path]))

    def _repr_html_(self) -> str:
        rows = [
            ["weights", f"{sum(it.size for it in self.parameters.values()):,}"],
            ["iteration", f"{self.iteration:,} of {self.config.training.iterations:,}"],
            ["directory", str(self.path)],
        ]
        shown = html.table("run", ["", ""], rows)
        if any("loss" in record for record in self.log):
            shown += html.picture(self.figure(), "losses, scores, learning rate and speed")
        return str(shown)


def open_run(
    path: str | Path,
    *,
    checkpoint: Which = "latest",
    overrides: Sequence[str] = (),
) -> Run:
    """Open a run directory that `znnpy train` or `znnpy import` made, without locking it.

    `checkpoint`: "latest", "best" (the best validated) or a number of iterations. `overrides`: `KEY=VALUE` of its
    config, but none of its network. Raises RunError where there is no run, or no such checkpoint.
    """
    if checkpoint not in ("latest", "best") and (
        isinstance(checkpoint, bool) or not isinstance(checkpoint, int) or checkpoint < 0
    ):
        raise ArgumentError(
            f"checkpoint: must be 'latest', 'best' or a number of iterations; found {checkpoint!r}"
        )
    if not isinstance(path, str | Path):
        raise ArgumentError(f"path: must be that of a run directory; found {shown(path)}")
    return Run(read_run(Path(path).expanduser(), NOTES, overrides, checkpoint))


def _bordered(config: Config, borders: str | None) -> Config:
    if borders is None:
        return config
    if borders not in ("valid", "mirror"):
        raise ArgumentError(f"borders: must be 'valid' or 'mirror'; found {borders!r}")
    return config.model_copy(update={"data": config.data.model_copy(update={"border": borders})})


def _output(network: Network, name: str | None) -> Node:
    names = [node.name for node in network.outputs]
    if name is None and len(names) == 1:
        return network.outputs[0]
    if name not in names:
        raise ArgumentError(f"node: must be one of {', '.join(names)}; found {name!r}")
    return network.node(name)
