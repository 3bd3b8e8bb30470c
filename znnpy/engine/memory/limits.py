"""Refuses networks that need more memory than the machine has or `max_memory` allows, with a size that would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import prod

from znnpy.data.process_memory import readable, whole_memory
from znnpy.engine.memory.allocation import STEPS
from znnpy.engine.memory.layout import Layout
from znnpy.errors import NetworkError, PlanError, ShapeError
from znnpy.geometry import Geometry, describe, fit
from znnpy.layers.edges import edge_kind
from znnpy.network.parameters import held, learned, parameter_shapes
from znnpy.network.types import Network, Triple

FLOAT = 4  # bytes
FITS = 16 << 20
"""Bytes that every machine has on which a process of Python runs: what it has is then not asked, which takes 1 ms."""


class TooLargeError(PlanError):
    """Raised where `max_memory` is too small; `needs`, `has` and `hint` are the parts of the message."""

    def __init__(self, needs: str, has: str, hint: str = "") -> None:
        super().__init__(f"{needs} max_memory is {has}{hint}")
        self.needs, self.has, self.hint = needs, has, hint


def refuse_hopeless(
    network: Network,
    geometry: Geometry,
    batch: int,
    training: bool,
    limit: int | None,
    staged: int | None = None,
    states: int = 0,
) -> None:
    """Refuse a network whose feature maps and parameters alone need too much, before it is planned for minutes.

    Raises PlanError if they exceed the machine, of which `copied_bytes` are set aside, TooLargeError if they exceed
    `limit` bytes. `batch`: samples computed at once; `staged`: samples whose inputs are kept (default: the same).
    `states`: arrays that the optimiser keeps of each parameter.
    """
    keeps = limit is None  # with a limit, feature maps may be recomputed for the backward pass
    # Lower bounds only: what they refuse no plan could save.
    images = image_bytes(network, geometry, batch, training, staged, keeps=keeps)
    parameters = parameter_bytes(network, training, states)
    copied = copied_bytes(network, states if training else 0)
    if images + parameters + copied <= (FITS if limit is None else min(FITS, limit)):
        return
    # Beside any plan there is a copy of what is saved, while it is drawn, loaded or written
    # (docs/design/memory.md).
    machine = whole_memory() - copied
    allowed = machine if limit is None else min(machine, limit)
    if images + parameters <= allowed:
        return
    # If parameters alone are too much, the message is about them: a smaller output would not help.
    needs, has = _apart(parameters + images * (parameters <= allowed), allowed)
    if parameters > allowed:
        count = sum(map(prod, parameter_shapes(network).values()))
        trained = ", their gradients and states of the optimizer" if training else ""
        text = f"{count:,} parameters{trained} need at least {needs} of memory"
    else:
        # Less than a hundredth is not worth a word.
        beside = ", with the parameters," if parameters > allowed / 100 else ""
        inputs = _joined(geometry.input_shapes.values())
        text = (
            f"output_shape {_described(geometry)} needs inputs of {inputs} voxels (z, y, x), and the feature maps of "
            f"{batch} of them{beside} at least {needs} of memory"
        )
    if allowed != machine:
        raise TooLargeError(f"{text};", has)
    more = f", and {readable(copied)} more while they are loaded or saved" * (
        copied > machine / 100
    )
    raise PlanError(f"{text}{more}; this machine has {readable(machine + copied)}")


def least_bytes(
    network: Network,
    geometry: Geometry,
    batch: int,
    training: bool,
    staged: int | None = None,
    *,
    states: int = 0,
    keeps: bool = True,
) -> int:
    """Return the bytes that every plan needs, for feature maps and parameters."""
    images = image_bytes(network, geometry, batch, training, staged, keeps=keeps)
    return images + parameter_bytes(network, training, states)


def parameter_bytes(network: Network, training: bool, states: int) -> int:
    """Return the bytes that parameters need at least: values, and in training gradients and optimiser states."""
    shapes = parameter_shapes(network)
    if not training:  # what norms keep is folded into filters
        beside = {name for node in network.nodes for name in held(node)}
        return FLOAT * sum(prod(shape) for name, shape in shapes.items() if name not in beside)
    moving = sum(prod(shapes[name]) for name in learned(network))
    return FLOAT * (sum(map(prod, shapes.values())) + (1 + states) * moving)


def copied_bytes(network: Network, states: int) -> int:
    """Return the bytes of a copy of what is saved: parameters and optimiser states."""
    shapes = parameter_shapes(network)
    moving = sum(prod(shapes[name]) for name in learned(network))
    return FLOAT * (sum(map(prod, shapes.values())) + states * moving)


def image_bytes(
    network: Network,
    geometry: Geometry,
    batch: int,
    training: bool,
    staged: int | None = None,
    *,
    keeps: bool = True,
) -> int:
    """Return the bytes that feature maps need at least: inputs, outputs, and the largest one between.

    An update that `keeps` the forward pass's values needs every feature map that a convolution reads.
    """
    size = {
        node.name: FLOAT * batch * node.channels * prod(geometry.nodes[node.name].shape)
        for node in network.nodes
    }
    ends = {node.name for node in (*network.inputs, *network.outputs)}
    inner = {
        node.name: size[node.name]
        for node in network.nodes
        if node.name not in ends and node.kind != "concat"
    }
    inputs = sum(size[node.name] for node in network.inputs)
    outputs = sum(size[node.name] for node in network.outputs)
    # Inputs are staged for both parities, so that one step can be filled while the other runs.
    if training:
        inputs = STEPS * inputs * (staged or batch) // batch
    if not (training and keeps):
        return inputs + max(inner.values(), default=0) + outputs
    # Weight gradients need what their convolution has read; all other values could be made again or
    # overwritten.
    read = {edge.source for edge in network.edges if edge_kind(edge.kind).learns}
    return inputs + sum(size for name, size in inner.items() if name in read) + outputs


def refuse_above(limit: int, needed: int, layout: Layout, needs: Callable[[Layout], int]) -> None:
    """Raise TooLargeError if a layout needs more than `limit` bytes, with an output shape that would fit.

    `needed`: bytes of this layout; `needs`: returns those of another.
    """
    if needed <= limit:
        return
    fitting = _fitting(limit, needed, layout, needs)
    hint = f"output_shape {fitting} would fit" if fitting else "no smaller output shape fits either"
    least = " at least" if layout.training else ""  # even with rematerialisation
    wanted, has = _apart(needed, limit)
    raise TooLargeError(
        f"output_shape {_described(layout.geometry)} needs{least} {wanted},", has, f"; {hint}"
    )


def _apart(needed: int, limit: int) -> tuple[str, str]:
    """Return both sizes as text, in bytes if rounded they would read the same."""
    texts = readable(needed), readable(limit)
    return texts if texts[0] != texts[1] else (f"{needed:,} B", f"{limit:,} B")


def _fitting(limit: int, needed: int, layout: Layout, needs: Callable[[Layout], int]) -> str | None:
    """Return the largest shape of the same proportions, in steps of 5 %, that fits; None if there is none."""
    tried = [dict(layout.geometry.output_shapes)]
    # Steps of 5 %: each try plans a whole network, and a hint needs no more digits.
    for percent in range(95, 0, -5):
        # Planning declares all tasks: not for a size whose voxels alone are too many.
        # A fair guess, not a bound: parameters do not shrink, so what this lets through may still
        # be too large.
        if needed * (percent / 100) ** 3 > limit:
            continue
        shapes = {
            name: _scaled(shape, percent / 100)
            for name, shape in layout.geometry.output_shapes.items()
        }
        if shapes in tried:
            continue
        tried.append(shapes)
        try:
            smaller = replace(layout, geometry=fit(layout.network, shapes))
        except (NetworkError, ShapeError):
            continue
        if needs(smaller) <= limit:
            return _described(smaller.geometry)
    return None


def _scaled(shape: Triple, factor: float) -> Triple:
    z, y, x = (max(1, int(size * factor)) for size in shape)
    return (z, y, x)


def _described(geometry: Geometry) -> str:
    return _joined(geometry.output_shapes.values())


def _joined(shapes: Iterable[Triple]) -> str:
    return ", ".join(describe(shape) for shape in shapes)
