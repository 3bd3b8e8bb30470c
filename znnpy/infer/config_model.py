"""Builds models from a config: one that trains, or one that predicts patches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from znnpy.config.models import Config
from znnpy.data.config_volumes import normalisations
from znnpy.data.scene import Scene
from znnpy.distributed.world import World
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.model import Model
from znnpy.engine.progress import Report
from znnpy.engine.settings import Execution, Hardware, Training
from znnpy.errors import ConfigError
from znnpy.geometry import trained_geometry
from znnpy.infer.blocks import Field, Region, middle, triple
from znnpy.infer.microbatch import with_microbatch_chosen
from znnpy.infer.patch_search import Candidate, best_patch, counted_workers, covering
from znnpy.infer.plan_limits import pinned_plan, plan_room
from znnpy.infer.predict import VolumePrediction
from znnpy.infer.tiling import Tiling
from znnpy.infer.together import Helpers
from znnpy.network import losses_of
from znnpy.network.freezing import frozen
from znnpy.network.parameters import learned, parameter_shapes
from znnpy.network.types import Network, Triple

# Less: smaller patches, which repeat more halo. More: memory that whatever runs beside an
# evaluation may need.
BUDGET = 1 << 30  # bytes of a model that predicts in memory, unless told otherwise


@dataclass(frozen=True)
class Weights:
    """A trained network: its config, plan and parameters by name.

    `helpers`: others that compute patches of its predictions, if there are any.
    """

    config: Config
    network: Network
    plan: Mapping[str, Any] | None
    parameters: Mapping[str, Any]
    helpers: Helpers | None = None


def training_model(
    config: Config,
    network: Network,
    plan: Mapping[str, Any] | None,
    record: int = 0,
    report: Report | None = None,
    ranks: World | None = None,
    cut_for: int | None = None,
) -> Model:
    """Return the model that a config trains; `plan` repeats the choices of an earlier start.

    Without one those of `training.plan`, if the config names a file. `record` is the number of task
    events to keep for a profile; `report` is told of preparations. `ranks`: the world that shares each update.
    `cut_for`: workers that have enough tasks.
    """
    config = with_microbatch_chosen(config, network, ranks.size if ranks else 1, cut_for or 0)
    # A run's own plan first: it goes on as it was begun, even if the file has changed since.
    plan = plan if plan is not None else pinned_plan(config, network)
    trained_geometry(config, network)  # what is refused names its line
    frozen_of(config, network)
    # What is left of run.max_memory beside the copy that each checkpoint is written from.
    with plan_room(config, network) as most:
        return _trained(config, network, plan, most, record, report, ranks, cut_for)


def _trained(
    config: Config,
    network: Network,
    plan: Mapping[str, Any] | None,
    most: int | None,
    record: int,
    report: Report | None,
    ranks: World | None,
    cut_for: int | None,
) -> Model:
    training, run = config.training, config.run
    return Model(
        network,
        output_shape=training.output_shape,
        batch=training.batch,
        threads=run.threads,
        seed=training.seed,
        conv=training.conv,
        loss=losses_of(config, network),
        optimizer=Optimizer.trained(training),
        plan=plan,
        training=Training(
            factors={node.name: training.weight(node.name) for node in network.outputs},
            clip_norm=training.clip_norm,
            freeze=training.freeze,
            microbatch=training.at_once,
        ),
        hardware=Hardware(
            precision=training.precision,
            max_memory=most,
            ranks=ranks,
            distributed=config.distributed,
        ),
        execution=Execution(
            policy=run.policy,
            steal_seed=run.steal_seed,
            cut_for=cut_for,
            record=record,
            report=report,
        ),
    )


def frozen_of(config: Config, network: Network) -> frozenset[str]:
    """Return the names of the parameters that a config's training leaves as they are; ConfigError names the line.

    Also where the network itself lets nothing learn (`learn: false`).
    """
    if parameter_shapes(network) and not learned(network):
        place = config.place("network")
        raise ConfigError(f"{place}: no parameter learns (learn), so that nothing would be learned")
    return frozen(
        network,
        config.training.freeze,
        lambda index: config.place("training", "freeze", index),
    )


def patch_model(
    config: Config,
    network: Network,
    patch: Triple,
    plan: Mapping[str, Any] | None,
    record: int = 0,
    report: Report | None = None,
    cut_for: int | None = None,
    most: int | None = None,
    lean: bool = False,
    batch: int = 1,
) -> Model:
    """Return a model that only predicts, for `batch` output patches of one shape (z, y, x) at once.

    `record` is the number of task events to keep for a profile; `report` is told of compilation. `cut_for`: workers
    that have enough tasks. `most`: bytes that float32 may take; PlanError where it needs more.
    `lean`: as little memory as can be, for a little more time.
    """
    precision = config.training.precision
    return Model(
        network,
        output_shape=patch,
        batch=batch,
        threads=config.run.threads,
        seed=config.training.seed,
        conv=config.training.conv,
        loss=losses_of(config, network),
        plan=plan,
        training=False,
        hardware=Hardware(precision=precision, max_memory=most if precision == "float32" else None),
        execution=Execution(cut_for=cut_for, lean=lean, record=record, report=report),
    )


@contextmanager
def prediction_of(
    weights: Weights, scene: Scene, patch: Triple | None = None, most: int | None = None
) -> Iterator[VolumePrediction]:
    """Yield the prediction of a scene on the network's own grid, computed as the run's plan says.

    `patch` (z, y, x) is chosen by memory when not given, or the config's window; `most` limits the voxels to
    those in the middle. The model is closed at the end, the scene is not.
    """
    config, network = weights.config, weights.network
    mirror, tiling = config.data.border == "mirror", Tiling.of(config, network, patch)
    corners = {name: scene.corner(volume) for name, volume in scene.images.items()}
    whole = tiling.field(scene.images, corners, mirror)
    field = whole if most is None else middle(whole, most, tiling.unit)
    chosen = tiling.window or patch or _best(weights, field)
    # Windows keep their size, as values depend on it; patches need not be larger than the field.
    if tiling.window is None:
        chosen = covering(network, triple(min(p) for p in zip(chosen, field.shape, strict=True)))
    candidate = Candidate(network, chosen, config.training.conv, weights.plan)
    plan, norms = candidate.plan.to_record(), normalisations(scene, config.data)
    grid = tiling.grid(whole, candidate.geometry, field)
    region = Region((0, 0, 0), field.shape)
    # In memory there is room for all patches that two pieces share.
    kept = grid.shared(region, grid.pieces(region)[0].shape, (0, 0, 0))
    engine = max(BUDGET, candidate.bytes(counted_workers()))
    with patch_model(config, network, chosen, plan, most=engine) as model:
        model.set_parameters(weights.parameters)
        helped = weights.helpers(model, chosen, plan) if weights.helpers else nullcontext()
        with helped as together:
            yield VolumePrediction(
                model, scene, field, norms, None, kept, grid, mirror=mirror, together=together
            )


def _best(weights: Weights, field: Field) -> Triple:
    config = weights.config
    return best_patch(
        weights.network,
        Region((0, 0, 0), field.shape),
        config.training.conv,
        lambda candidate: candidate.bytes(counted_workers()),
        min(BUDGET, (config.run.max_memory or BUDGET)),
        weights.plan,
    ).patch
