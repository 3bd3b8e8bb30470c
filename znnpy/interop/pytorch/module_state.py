"""Parameters of a model as the state dict of the PyTorch module that it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ExportError, ZnnpyError
from znnpy.interop.pytorch.program import Program, library
from znnpy.interop.turned_round import Arrays, refuse_other, turned_round


@dataclass(frozen=True)
class ModuleState:
    """`shapes`: of the tensors that the program has from the state dict and reads; `kept`: its other ones.

    `names`: for each tensor of the state dict, in order, its name in the program, as one may have several; None for
    those in `left`, which the program does not read, as they are in the module.
    """

    program: Program
    shapes: Mapping[str, tuple[int, ...]]
    kept: Mapping[str, Any]
    names: Mapping[str, str | None]
    left: Mapping[str, Any]

    @classmethod
    def of(cls, module: Any, program: Program) -> Self:
        """Return what a module's state dict is; of its weights none is kept that the model has."""
        torch = library()
        # Beside tensors, modules may keep objects of their own there (`get_extra_state`).
        state = {
            name: it
            for name, it in module.state_dict(keep_vars=True).items()
            if isinstance(it, torch.Tensor)
        }
        first = {id(state[name]): name for name in program.read if name in state}
        names = {
            name: first.get(id(it)) if it.is_floating_point() else None
            for name, it in state.items()
        }
        shapes = {name: tuple(state[name].shape) for name in names.values() if name is not None}
        return cls(
            replace(program, tensors={}),
            shapes,
            {name: it for name, it in program.tensors.items() if name not in shapes},
            names,
            {name: it.detach() for name, it in state.items() if names[name] is None},
        )

    def of_parameters(self, parameters: Arrays) -> dict[str, NDArray[Any]]:
        """Return all tensors of the module's state dict, those that the net has with its values."""
        torch = library()

        def made(arrays: Arrays) -> Arrays:
            tensors = {
                name: torch.from_numpy(np.asarray(it, np.float32)) for name, it in arrays.items()
            }
            return self.program.described({**self.kept, **tensors}).parameters

        try:
            found = turned_round(self.shapes, made, parameters)
            for name, array in found.items():
                if not np.isfinite(array).all():
                    raise ExportError(f"the net has {name} not as it is")
            refuse_other(made(found), parameters)
        except ZnnpyError as error:
            raise ExportError(f"no state dict of the module: {error}") from error
        return {
            name: _array(torch, self.left[name]) if it is None else found[it].copy()
            for name, it in self.names.items()
        }


def _array(torch: Any, tensor: Any) -> NDArray[Any]:
    """Return a copy, as float32 of a type that NumPy does not have."""
    known = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    found: NDArray[Any] = known.cpu().numpy().copy()
    return found
