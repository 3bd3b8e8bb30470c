"""Checks the arguments of `Model`, by the same sections that check a config, and converts them to plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field

from znnpy.config import check_section
from znnpy.config.problems import Key, MalformedConfigError, dotted
from znnpy.config.training_section import DistributedSection, RunSection, TrainingSection
from znnpy.distributed.world import World
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.progress import Report
from znnpy.engine.settings import (
    GROUPS,
    MOST_EVENTS,
    Execution,
    Training,
    place,
    refuse_unknown,
)
from znnpy.errors import ConfigError
from znnpy.fields import Int, Strict, of_python, shown
from znnpy.learning.loss import LossKeys
from znnpy.plan import Plan
from znnpy.scheduler.core_count import available_cores

Record = Mapping[str, Mapping[str, Any]]
Section = TypeVar("Section", bound=BaseModel)
WHO = "Model"
"""Begins what is said of its arguments."""


# Keys of `Model` that are checked by the sections `training` and `run` of a config, under the same
# names.
LEARNING = ("batch", "microbatch", "seed", "loss", "conv", "clip_norm", "freeze", "precision")
RUNNING = ("max_memory", "policy", "steal_seed")


class _Own(Strict):
    """Arguments that no config has, or not so."""

    # More than machines have cores: each worker takes deques and scratch of its own.
    threads: Annotated[Int, Field(ge=0, le=4096)] | None
    cut_for: Annotated[Int, Field(ge=1, le=4096)] | None
    lean: bool
    record: Annotated[Int, Field(ge=0, le=MOST_EVENTS)]


@dataclass(frozen=True)
class Arguments:
    """Sections of a config, and what there is beside them. `threads`: 0 for the serial executor.

    `losses`: the loss of all outputs, or of each by name.
    """

    learning: TrainingSection
    running: RunSection
    threads: int
    training: bool
    cut_for: int | None
    lean: bool
    record: int
    optimizer: Optimizer
    factors: Mapping[str, float]
    losses: LossKeys | Mapping[str, LossKeys]
    plan: Record | None
    report: Report | None
    ranks: World | None
    distributed: DistributedSection

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Arguments:
        """Check what users have given to `Model`, by name and of any types, its groups among them.

        ConfigError says which is wrong, and in which group; ArgumentError what is no name.
        """
        refuse_unknown(
            given["unknown"], [name for name in given if name not in ("self", "unknown")]
        )
        # Before the groups: a Training may stand where a truth value is taken.
        trains = _trains(given["training"])
        flat = {**given, **_of_groups(given)}
        factors = _mapping("factors", "output nodes to numbers", flat["factors"])
        outputs = {name: {"weight": factor} for name, factor in factors.items()}
        apart = _losses_apart(flat["loss"])
        for name, loss in apart.items():
            outputs[name] = {**outputs.get(name, {}), "loss": loss}
        # The section needs some output shape; the real one may be a mapping and is checked by
        # `fit`.
        settings = {"output_shape": 1, "outputs": outputs} | {key: flat[key] for key in LEARNING}
        if apart:
            del settings["loss"]
        learning = _checked(TrainingSection, settings)
        own = _checked(_Own, {key: flat[key] for key in _Own.model_fields})
        ranks, report = flat["ranks"], flat["report"]
        if ranks is not None and not isinstance(ranks, World):
            raise _wrong("ranks", "a World", ranks)
        if report is not None and not callable(report):
            raise _wrong(
                "report", "a function of what is done, how much of it, and of how much", report
            )
        return cls(
            learning,
            _checked(RunSection, {key: flat[key] for key in RUNNING}),
            available_cores() if own.threads is None else own.threads,
            trains,
            own.cut_for,
            own.lean,
            own.record,
            Optimizer.of(flat["optimizer"]),
            {name: learning.weight(name) for name in factors},
            {name: learning.loss_of(name) for name in apart} or learning.loss,
            None if flat["plan"] is None else _plan(flat["plan"]),
            report,
            ranks,
            _distributed(flat["distributed"]),
        )


def _trains(given: Any) -> bool:
    """Return whether there are updates, which a Training implies."""
    given = of_python(given)
    if not isinstance(given, bool | Training):
        raise _wrong("training", "a Training, true or false", given)
    return given is not False


def _of_groups(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of all groups; a group that is not given has its defaults."""
    found: dict[str, Any] = {}
    for name, kind in GROUPS.items():
        group = given[name]
        if group is None or (kind is Training and not isinstance(group, Training)):
            group = kind()
        if not isinstance(group, kind):
            article = "an" if kind is Execution else "a"
            raise _wrong(name, f"{article} {kind.__name__}", group)
        found |= {key.name: getattr(group, key.name) for key in fields(kind)}
    return found


def _checked(section: type[Section], values: Mapping[str, Any]) -> Section:
    """Return a config's section of what `Model` was given; problems are told by the keys that `Model` has for them."""
    try:
        return check_section(section, values, WHO)
    except MalformedConfigError as error:
        problems = [replace(problem, key=_key(problem.key)) for problem in error.problems]
        # `from None`: the first error names keys of the section, which users of `Model` have not
        # written.
        raise MalformedConfigError(problems) from None


def _key(key: Key) -> Key:
    """Return a key of a config's section as `Model` takes it; outputs have nothing but factors and losses here."""
    if not key or key[0] != "outputs":
        return (*place(str(key[0])), *key[1:]) if key else key
    output, *rest = key[1:]
    if rest[:1] == ["loss"]:
        return ("loss", output, *rest[1:])
    return (*place("factors"), output, *(part for part in rest if part != "weight"))


def _losses_apart(given: Any) -> Mapping[Any, Any]:
    """Return losses by output; nothing where one is given for all: its name, or its keys, one of which is `kind`."""
    if not isinstance(given, Mapping) or "kind" in given:
        return {}
    for name, loss in given.items():
        if not isinstance(name, str):
            raise ConfigError(f"{WHO}: loss: must be by names of outputs; found {shown(name)}")
        if loss is None:
            raise ConfigError(
                f"{WHO}: loss.{name}: must be a loss, by name or with keys; found None"
            )
    return given


def _plan(given: Any) -> Record:
    if isinstance(given, Plan):
        return given.to_record()
    return _mapping("plan", "layers to passes, as `plan_record` is", given)


def _distributed(given: Any) -> DistributedSection:
    if isinstance(given, DistributedSection):
        return given
    keys = _mapping("distributed", "the keys of a config's section", given)
    return check_section(DistributedSection, keys, f"{WHO}: {dotted(place('distributed'))}")


def _mapping(name: str, what: str, given: Any) -> Mapping[Any, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _wrong(name, f"a mapping from {what}", given)
    return given


def _wrong(name: str, wanted: str, given: Any) -> ConfigError:
    return ConfigError(f"{WHO}: {dotted(place(name))}: must be {wanted}; found {shown(given)}")
