"""What a model is told when it is made: checked as a config's sections are, and plain, whatever it was given as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from znnpy.config import check_section
from znnpy.config.distributed_section import DistributedSection
from znnpy.config.training_section import RunSection, TrainingSection
from znnpy.distributed.world import World
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.progress import Report
from znnpy.errors import ConfigError
from znnpy.fields import Bool, Int, Strict, shown
from znnpy.plan import Plan
from znnpy.scheduler.core_count import available_cores

Record = Mapping[str, Mapping[str, Any]]
WHO = "Model"
"""Begins what is said of its arguments."""


LEARNING = ("batch", "microbatch", "seed", "loss", "conv", "clip_norm", "precision")
RUNNING = ("max_memory", "policy", "steal_seed")


class _Own(Strict):
    """Arguments that no config has, or not so."""

    threads: Annotated[Int, Field(ge=0, le=4096)] | None
    training: Bool
    record: Annotated[Int, Field(ge=0, le=2**24)]  # events of a worker, which are reserved at once


@dataclass(frozen=True)
class Arguments:
    """Sections of a config, and what there is beside them. `threads`: 0 for the serial executor."""

    learning: TrainingSection
    running: RunSection
    threads: int
    training: bool
    record: int
    optimizer: Optimizer
    factors: Mapping[str, float]
    plan: Record | None
    report: Report | None
    ranks: World | None
    distributed: DistributedSection

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Arguments:
        """What users have given, by name and of any types; ConfigError says which is wrong."""
        factors = _mapping("factors", "output nodes to numbers", given["factors"])
        outputs = {name: {"weight": factor} for name, factor in factors.items()}
        settings = {"output_shape": 1, "outputs": outputs} | {key: given[key] for key in LEARNING}
        learning = check_section(TrainingSection, settings, WHO)
        own = check_section(_Own, {key: given[key] for key in _Own.model_fields}, WHO)
        ranks, report = given["ranks"], given["report"]
        if ranks is not None and not isinstance(ranks, World):
            raise _wrong("ranks", "a World", ranks)
        if report is not None and not callable(report):
            raise _wrong(
                "report", "a function of what is done, how much of it, and of how much", report
            )
        return cls(
            learning,
            check_section(RunSection, {key: given[key] for key in RUNNING}, WHO),
            available_cores() if own.threads is None else own.threads,
            own.training,
            own.record,
            Optimizer.of(given["optimizer"]),
            {name: output.weight for name, output in learning.outputs.items()},
            None if given["plan"] is None else _plan(given["plan"]),
            report,
            ranks,
            _distributed(given["distributed"]),
        )


def _plan(given: Any) -> Record:
    if isinstance(given, Plan):
        return given.to_record()
    return _mapping("plan", "layers to passes, as `plan_record` is", given)


def _distributed(given: Any) -> DistributedSection:
    if isinstance(given, DistributedSection):
        return given
    keys = _mapping("distributed", "the keys of a config's section", given)
    return check_section(DistributedSection, keys, f"{WHO}: distributed")


def _mapping(name: str, what: str, given: Any) -> Mapping[Any, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _wrong(name, f"a mapping from {what}", given)
    return given


def _wrong(name: str, wanted: str, given: Any) -> ConfigError:
    return ConfigError(f"{WHO}: {name}: must be {wanted}; found {shown(given)}")
