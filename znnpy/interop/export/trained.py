"""The network of a run as it is exported: what it computes, with which weights, and what is said about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel

import znnpy
from znnpy.config.data_section import DataSection
from znnpy.config.normalize_section import (
    ClipNormalize,
    DeviationNormalize,
    FixedNormalize,
    PercentilesNormalize,
    RangeNormalize,
)
from znnpy.errors import RunError
from znnpy.geometry import Geometry, fit
from znnpy.geometry.receptive_field import lattice_of
from znnpy.interop.classes.origin import Origin
from znnpy.interop.export.computation import Computation, Tensor
from znnpy.interop.export.description import described
from znnpy.interop.export.state_dict import state_dict
from znnpy.interop.nnunet.recognition import recognised
from znnpy.learning.loss import LossKeys
from znnpy.learning.losses import loss_of
from znnpy.network import training_losses
from znnpy.train.members import further_members
from znnpy.train.run_directory import ORIGIN, read_object
from znnpy.train.start import SavedRun

_ALONE = {
    "unit": "integers divided by the largest value of their type, floats as they are",
    "none": "values as they are",
}


@dataclass(frozen=True)
class Trained:
    """A run's network for prediction. `logits`: outputs are values before the logistic or softmax of the loss."""

    saved: SavedRun
    logits: bool = False

    @property
    def title(self) -> str:
        """What it is, in words."""
        name = self.saved.path.resolve().name
        return f"Network of the run {name!r} after {self.saved.checkpoint.iteration} updates"

    def computation(self) -> Computation:
        """Return what it computes from normalised images; ExportError names what other programs do not have."""
        weights = self.saved.weights
        losses = training_losses(self.saved.config, weights.network)
        shown = {
            node.name: functions[0]
            for node in weights.network.outputs
            if (functions := losses[node.name].reading.functions) and not self.logits
        }
        return described(weights.network, weights.parameters, shown)  # type: ignore[arg-type]

    @cached_property
    def origin(self) -> Origin | None:
        """The class that the network was taken over from; RunError for a damaged file."""
        path = self.saved.path / ORIGIN
        said = read_object(path)
        try:
            return None if said is None else Origin.read(said)
        except ValueError as error:
            raise RunError(
                f"{path} is damaged: {error}; put the file back, or remove it to write the module's own names"
            ) from error

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights by the names of a PyTorch class: the one that the network was taken over from, or is.

        Coarser outputs are included if that class has them.
        """
        if self.origin is not None:
            return self.origin.state_dict(self.saved.parameters)
        weights = self.saved.weights
        if recognised(self.saved.network) is not None:
            return state_dict(self.saved.network, self.saved.parameters)
        return state_dict(weights.network, weights.parameters)

    @property
    def module(self) -> str:
        """The class whose state dict it has."""
        if self.origin is not None:
            return self.origin.name
        architecture = recognised(self.saved.network)
        return "Net of znnpy export --format torch" if architecture is None else architecture.kind

    @cached_property
    def geometry(self) -> Geometry:
        """The sizes of a window of prediction."""
        config = self.saved.config
        window = config.inference.window or config.training.output_shape
        return fit(self.saved.weights.network, window)

    def facts(self) -> dict[str, str]:
        """Return what a user of the file has to know, by name, as JSON: normalisation, sizes (z, y, x)."""
        config, network = self.saved.config, self.saved.weights.network
        lattice, data = lattice_of(network), config.data
        values: dict[str, Any] = {
            "updates": self.saved.checkpoint.iteration,
            "normalize": data.normalize.model_dump(mode="json"),
            "period": lattice.period,
            "field_of_view": lattice.views,
            "logits": self.logits,
            **self.learned(),
        }
        if data.prepare is not None:
            values["prepare"] = data.prepare.model_dump(mode="json")
        shapes = self.geometry
        values |= {"input_shapes": shapes.input_shapes, "output_shapes": shapes.output_shapes}
        said = {key: json.dumps(value) for key, value in values.items()}
        return {"znnpy_version": znnpy.__version__, "title": self.title, **said}

    def learned(self) -> dict[str, Any]:
        """Return what each output learned, in their order, and by which loss, as a config says them; else nothing."""
        config, outputs = self.saved.config, self.saved.weights.network.outputs
        targets = [config.target(node.name) for node in outputs]
        if any(target.kind == "unknown" for target in targets):
            return {}
        said: dict[str, Any] = {"targets": [_plain(target) for target in targets]}
        losses = [config.training.loss_of(node.name) for node in outputs]
        if self.logits and any(_ways(loss) > 1 for loss in losses):
            return said  # nothing in the file tells which of them its logits are
        said["losses"] = [_plain(loss) for loss in losses]
        if len(outputs) > 1:  # of a single loss it is but a learning rate
            said["loss_weights"] = [config.training.weight(node.name) for node in outputs]
        return said

    def notes(self, weights_alone: bool = False) -> Sequence[str]:
        """Return what the written network, or its weights, do not do of what `znnpy predict` does."""
        words = normalisation_words(self.saved.config.data)
        named = f"names of weights are those of the class {self.module}"
        ready = f"the input is to be prepared as the run does it: {words}"
        found = [named if weights_alone else ready]
        others = len(further_members(self.saved))
        if others:
            found.append(
                f"of the run's {others + 1} members, whose logits predict averages, the first is written"
            )
        if self.saved.config.inference.flips and not weights_alone:
            found.append("mirror images, whose mean predict takes, are not in it")
        return found


def normalisation_words(data: DataSection) -> str:
    """Return what a run does to images before its network sees them, in words."""
    if data.prepare is not None and data.prepare.normalize is not None:
        return "scans turned, cropped, normalised and resampled (data.prepare)"
    if data.prepare is not None:
        return f"scans turned, cropped and resampled (data.prepare), then {_words(data)}"
    return _words(data)


def _words(data: DataSection) -> str:
    match data.normalize:
        case FixedNormalize() as by:
            return (
                f"(value - mean) / deviation, mean {list(by.mean)}, deviation {list(by.deviation)}"
            )
        case ClipNormalize() as by:
            return (
                f"values cut to {list(by.low)} and {list(by.high)}, then (value - mean) / deviation, mean "
                f"{list(by.mean)}, deviation {list(by.deviation)}"
            )
        case DeviationNormalize() | RangeNormalize() | PercentilesNormalize() as own:
            return _own_words(own)
        case other:
            return _ALONE[other.kind]


def _own_words(own: DeviationNormalize | RangeNormalize | PercentilesNormalize) -> str:
    done = "minus its mean, by its standard deviation"
    if isinstance(own, RangeNormalize):
        done = "from 0 to 1 by its least and largest value"
    if isinstance(own, PercentilesNormalize):
        cut = ", cut to them" if own.clip else ""
        done = f"from 0 to 1 by its percentiles {own.low:g} and {own.high:g}{cut}"
    zeros = "; of voxels that are not 0, which stay 0" if own.nonzero else ""
    return f"each channel of a {own.per} {done}{zeros}"


def _plain(section: BaseModel) -> dict[str, Any]:
    return section.model_dump(mode="json", exclude_none=True)


def _ways(loss: LossKeys) -> int:
    """Return by how many functions of an output a loss may read it."""
    return len([reading for reading in loss_of(loss).readings if reading.functions])
