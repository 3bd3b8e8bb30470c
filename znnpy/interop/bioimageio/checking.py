"""A package's net beside its own test tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from znnpy.engine import Model
from znnpy.errors import ModelFileError, ZnnpyError
from znnpy.geometry import fit_input
from znnpy.interop.bioimageio.package import Package
from znnpy.interop.bioimageio.steps import Floats, applied
from znnpy.interop.bioimageio.tensors import Tensor
from znnpy.interop.operators.described import Described

NEAR = 1e-3
"""Of the range of an output: what is further away is another net. Weights of half precision come to some 1e-4."""


def checked(
    package: Package,
    found: Described,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    guessed: str = "",
) -> str:
    """Return a note that says how near the net is to the package's test; ModelFileError where it is another.

    `guessed`: the name of the class, where a test alone can tell that it is the one meant.
    """
    (image,) = inputs
    if image.test is None or any(output.test is None for output in outputs):
        if guessed:
            raise ModelFileError(
                f"{package.title}: has no test tensors, which would tell whether {guessed} is the class of that name"
            )
        return f"{package.title}: has no test tensors: the net was not checked"
    raw = image.solid(package.array(image.test, None, f"{image.where}: test tensor"))
    wanted = [
        output.solid(package.array(output.test, None, f"{output.where}: test tensor"))
        for output in outputs
    ]
    made = _made(found, applied(raw[:1], image.steps).astype(np.float32), package.title)
    furthest = 0.0
    for output, array, name in zip(outputs, wanted, names_of(list(made), outputs), strict=True):
        ours = applied(made[name], output.steps)
        if ours.shape != array[:1].shape:
            raise ModelFileError(
                f"{output.where}: the net makes {ours.shape[1:]} (c, z, y, x), the test tensor is {array.shape[1:]}"
            )
        away = float(np.abs(ours - array[:1]).max() / max(np.ptp(array), 1e-30))
        furthest = max(furthest, away)
        if not away <= NEAR:
            raise ModelFileError(
                f"{output.where}: the output is {away:.2g} of its range away from the test tensor: it is another net"
            )
    return f"{package.title}: its test tensors are met to {furthest:.1g} of their range"


def _made(found: Described, image: Any, title: str) -> Mapping[str, Floats]:
    try:
        shapes = fit_input(found.network, image.shape[2:]).output_shapes
        with Model(found.network, shapes, training=False, loss="square") as model:
            model.set_parameters(found.parameters)
            values = model.forward(image)
    except ZnnpyError as error:
        raise ModelFileError(f"{title}: its test tensor cannot be computed: {error}") from error
    if not isinstance(values, dict):
        values = {found.network.outputs[0].name: values}
    return {name: np.asarray(array, np.float64) for name, array in values.items()}


def names_of(made: Sequence[str], outputs: Sequence[Tensor]) -> list[str]:
    """Return the outputs here in the package's order."""
    ids = [output.name for output in outputs]
    if len(made) != len(ids):
        raise ModelFileError(f"the net has {len(made)} outputs, and the package says {len(ids)}")
    if set(ids) == set(made):
        return ids
    return (
        [f"output{n or ''}" for n in range(len(ids))]
        if "output" in made and len(ids) > 1
        else list(made)
    )
