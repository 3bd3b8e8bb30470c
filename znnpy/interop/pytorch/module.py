"""`from_torch`: a module of PyTorch as a `Model`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from znnpy.engine import Model, Training
from znnpy.errors import ArgumentError
from znnpy.interop.operators.described import Described
from znnpy.interop.operators.sketch import Floats
from znnpy.interop.operators.training import loss_for
from znnpy.interop.pytorch.module_state import ModuleState
from znnpy.interop.pytorch.operators import DIVISOR, ONE_NUMBER
from znnpy.interop.pytorch.program import Program
from znnpy.network.parameters import learned as learned_parameters


def from_torch(module: Any, example: Any, output_shape: Any = None, **settings: Any) -> Model:
    """Return a model that computes what a module does in `eval()`, with its weights; the module stays as it is.

    `example`: one input, a tensor (batch, channels, z, y, x), or (batch, channels, y, x) of a flat net, which runs
    with z = 1. `output_shape` and all other settings are those of `Model`; by default patches are as large as the
    example, and the loss is one that the outputs' functions go with. What
    does not learn in the module (buffers, `requires_grad` False) and filters that only copy channels are frozen.
    Its `to_state_dict()` has the names of the module, for `module.load_state_dict`.
    Raises ModelFileError, which names the first operator that is not supported, ArgumentError for what is no module
    or tensor, ShapeError and others as `Model`.
    """
    program = Program.of(module, example)
    found = program.described(program.tensors)
    if "network" in settings:
        raise ArgumentError("from_torch() takes no network=; it makes one")
    training = settings.pop("training", True)
    if training is not False:
        if notes := [note for note in found.notes if note.endswith((ONE_NUMBER, DIVISOR))]:
            raise ArgumentError(
                f"{notes[0]}; say requires_grad = False of it, or training=False in from_torch()"
            )
        given = training if isinstance(training, Training) else Training()
        still, learned = program.still(), learned_parameters(found.network)
        if still.issuperset(learned):
            raise ArgumentError(
                "no parameter of the module learns (requires_grad); take training=False in from_torch()"
            )
        frozen = dict.fromkeys((*found.frozen, *(name for name in learned if name in still)))
        training = replace(given, freeze=(*given.freeze, *frozen))
    shapes = found.shapes if len(found.shapes) > 1 else next(iter(found.shapes.values()))
    shape = shapes if output_shape is None else output_shape
    settings.setdefault("loss", loss_for(found.network))
    state = ModuleState.of(module, program)
    model = ModuleModel(state, found.network, shape, training=training, **settings)
    model.set_parameters(found.parameters)
    return model


def described_module(module: Any, example: Any) -> Described:
    """Return the net of a module as nodes, edges and parameters."""
    program = Program.of(module, example)
    return program.described(program.tensors)


class ModuleModel(Model):
    """What `from_torch` makes: its weights go back by the names of the module."""

    def __init__(self, state: ModuleState, network: Any, shape: Any, **settings: Any) -> None:
        super().__init__(network, shape, **settings)
        self._state = state

    def to_state_dict(self) -> dict[str, Floats]:
        """Copies of `parameters` with the names and axis orders of the module's state dict, all of it.

        What the net does not read, such as counters of updates, is as it was in the module. ExportError for a module
        of which a parameter here was computed, as a sum or a product.
        """
        return self._state.of_parameters(self.parameters)
