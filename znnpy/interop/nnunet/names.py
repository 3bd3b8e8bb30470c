"""The names of nnU-Net's parameters, and what they are called here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from znnpy.interop.nnunet.architecture import RESIDUAL, Architecture
from znnpy.network.types import Network

PARTS = {
    "weight": "scale",
    "bias": "shift",
    "running_mean": "running_mean",
    "running_var": "running_variance",
}
"""What a norm keeps, there and here."""


@dataclass(frozen=True)
class Place:
    """Where a parameter of theirs goes: its name here; `transposed`: input and output channels change places.

    `turned`: how many of its first input channels come last here.
    """

    name: str
    transposed: bool = False
    turned: int = 0


def places(architecture: Architecture, network: Network) -> dict[str, Place]:
    """Return the place of each parameter by its name there."""
    found: dict[str, Place] = {}
    targets = {edge.name: edge.target for edge in network.edges}
    turned = {f"up{level}.conv1": width for level, width in enumerate(architecture.widths[:-1])}
    for theirs, edge, norm in _convolutions(architecture):
        if edge not in targets:
            continue
        found[f"{theirs}.weight"] = Place(edge, edge.endswith(".grow"), turned.get(edge, 0))
        found[f"{theirs}.bias"] = Place(targets[edge])
        for part, ours in PARTS.items() if norm else ():
            found[f"{norm}.{part}"] = Place(f"{targets[edge]}.{ours}")
    return found


def _convolutions(it: Architecture) -> Iterator[tuple[str, str, str]]:
    """Yield each convolution's name there and here, and its norm's name there, "" where none follows."""
    yield from (_encoder if it.kind == RESIDUAL else _plain_encoder)(it)
    levels = len(it.widths)
    for level, convs in enumerate(it.up):
        stage = levels - 2 - level
        yield f"decoder.transpconvs.{stage}", f"up{level}.grow", ""
        yield f"decoder.seg_layers.{stage}", f"output{level or ''}.conv", ""
        for index in range(convs):
            yield _unit(f"decoder.stages.{stage}.convs.{index}", f"up{level}.conv{index + 1}")


def _plain_encoder(it: Architecture) -> Iterator[tuple[str, str, str]]:
    for level, convs in enumerate(it.down):
        for index in range(convs):
            yield _unit(f"encoder.stages.{level}.0.convs.{index}", f"down{level}.conv{index + 1}")


def _encoder(it: Architecture) -> Iterator[tuple[str, str, str]]:
    yield _unit("encoder.stem.convs.0", "stem.conv")
    for level, blocks in enumerate(it.down):
        for index in range(blocks):
            theirs = f"encoder.stages.{level}.blocks.{index}"
            ours = f"down{level}" if blocks == 1 else f"down{level}.block{index + 1}"
            yield _unit(f"{theirs}.conv1", f"{ours}.conv1")
            yield _unit(f"{theirs}.conv2", f"{ours}.conv2")
            # The average, where there is one, is the first member of the shortcut.
            strided = index == 0 and max(it.steps[level]) > 1
            yield _unit(f"{theirs}.skip.{int(strided)}", f"{ours}.shortcut")


def _unit(theirs: str, ours: str) -> tuple[str, str, str]:
    return f"{theirs}.conv", ours, f"{theirs}.norm"


def plain_name(name: str) -> str:
    """Return a name without what wraps a net: data parallel, compiled."""
    for wrapper in ("module.", "_orig_mod."):
        name = name.removeprefix(wrapper)
    return name


def first_name(name: str, kept: Mapping[str, object]) -> str:
    """Return the name under which a parameter that is kept several times comes first; the name itself if it does."""
    if name.startswith("decoder.encoder."):
        name = name.removeprefix("decoder.")
    unit, found, part = name.partition(".all_modules.")
    if not found:
        return name
    number, _, what = part.partition(".")
    candidates = [f"{unit}.conv.{what}"] if number == "0" else [f"{unit}.norm.{what}"]
    return next((it for it in candidates if it in kept), name)
