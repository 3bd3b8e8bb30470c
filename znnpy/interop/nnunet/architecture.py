"""nnU-Net's architectures as `unet` keys: PlainConvUNet and ResidualEncoderUNet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from znnpy.interop.described import Described
from znnpy.network.types import Triple

PLAIN, RESIDUAL = "PlainConvUNet", "ResidualEncoderUNet"
_KEYS = (
    "n_stages", "features_per_stage", "conv_op", "kernel_sizes", "strides", "n_conv_per_stage", "n_blocks_per_stage",
    "n_conv_per_stage_decoder", "conv_bias", "norm_op", "norm_op_kwargs", "dropout_op", "dropout_op_kwargs", "nonlin",
    "nonlin_kwargs", "deep_supervision", "nonlin_first",
)  # fmt: skip
NORMS = {"InstanceNorm": "instance", "BatchNorm": "batch"}
_FUNCTIONS = {
    "LeakyReLU": "leaky_relu", "ReLU": "relu", "ELU": "elu", "GELU": "gelu", "SiLU": "silu",
}  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    """A net of nnU-Net: `kind`, levels from the finest to the coarsest, and the keys that all of it shares."""

    kind: str
    dimensions: int
    widths: Sequence[int]
    sizes: Sequence[Triple]
    steps: Sequence[Triple]
    down: Sequence[int]
    up: Sequence[int]
    shared: dict[str, Any]

    @classmethod
    def of(cls, described: Described) -> Architecture:
        """Return the architecture that plans describe; ModelFileError names what is not supported."""
        kind = described.text("network_class_name").rpartition(".")[2]
        if kind not in (PLAIN, RESIDUAL):
            raise described.wrong("network_class_name", f"must be {PLAIN} or {RESIDUAL}")
        keys = described.inside("arch_kwargs")
        keys.only(_KEYS)
        if "dropout_op" in keys:
            raise keys.wrong("dropout_op", "is not supported")
        if keys.truth("nonlin_first"):
            raise keys.wrong("nonlin_first", "is not supported")
        operator = keys.text("conv_op").rpartition(".")[2]
        if operator not in ("Conv2d", "Conv3d"):
            raise keys.wrong("conv_op", "must be Conv2d or Conv3d")
        levels, dimensions = keys.integer("n_stages"), int(operator[4])
        steps = _triples(keys, "strides", levels, dimensions)
        if steps[0] != (1, 1, 1):
            raise keys.wrong("strides", "must begin with 1")
        counts = "n_conv_per_stage" if kind == PLAIN else "n_blocks_per_stage"
        return cls(
            kind,
            dimensions,
            _each(keys, "features_per_stage", levels),
            _triples(keys, "kernel_sizes", levels, dimensions),
            steps,
            _each(keys, counts, levels),
            _each(keys, "n_conv_per_stage_decoder", levels - 1)[::-1],
            {"bias": keys.truth("conv_bias"), **_norm(keys), **_function(keys)},
        )

    def unet(self, channels: int, heads: int) -> dict[str, Any]:
        """Return the `unet` keys of the net, with an output at each level but the two coarsest, as it is trained."""
        found: dict[str, Any] = {
            "input": channels,
            "widths": list(self.widths),
            "down": [list(step) for step in self.steps[1:]],
            "size": [list(size) for size in self.sizes],
            "up_size": [list(size) for size in self.sizes[:-1]],
            "pool": "strided",
            **self.shared,
            "outputs": heads,
            "supervise": len(self.widths) - 2,
        }
        if self.kind == PLAIN:
            return found | {"convs": list(self.down), "up_convs": list(self.up)}
        block = {"kind": "residual", "from": "input", "add": "norm", "shortcut": "average"}
        return found | {
            "stem": list(self.sizes[0]),
            "blocks": list(self.down),
            "block": block,
            "up_block": "plain",
            "up_convs": list(self.up),
        }


def _each(keys: Described, key: str, levels: int) -> list[int]:
    """Return one number for each level, of a list or of one that stands for all."""
    if not isinstance(keys.values.get(key), list):
        return [keys.integer(key)] * levels
    found = keys.integers(key)
    if len(found) != levels:
        raise keys.wrong(key, f"must hold {levels} numbers")
    return found


def _triples(keys: Described, key: str, levels: int, dimensions: int) -> list[Triple]:
    """Return sizes z, y, x for each level; flat ones have one voxel along z."""
    given = keys.listed(key)
    if len(given) != levels:
        raise keys.wrong(key, f"must hold {levels} sizes")
    found = []
    for entry in given:
        one = entry if isinstance(entry, list) else [entry] * dimensions
        if len(one) != dimensions or not all(type(n) is int and 1 <= n <= 64 for n in one):
            raise keys.wrong(key, f"must hold {dimensions} sizes of 1 to 64 for each stage")
        z, y, x = [1] * (3 - dimensions) + one
        found.append((z, y, x))
    return found


def _norm(keys: Described) -> dict[str, Any]:
    if "norm_op" not in keys:
        return {}
    name = keys.text("norm_op").rpartition(".")[2]
    kind = NORMS.get(name[:-2])
    if kind is None:
        raise keys.wrong("norm_op", "must be InstanceNorm or BatchNorm")
    inside = (
        keys.inside("norm_op_kwargs") if "norm_op_kwargs" in keys else Described({}, keys.where)
    )
    inside.only(("eps", "affine", "momentum"))
    affine = inside.truth("affine", usual=kind == "batch")
    epsilon = inside.number("eps") if "eps" in inside else 1e-5
    return {"norm": {"kind": kind, "epsilon": epsilon, "affine": affine}}


def _function(keys: Described) -> dict[str, Any]:
    if "nonlin" not in keys:
        return {"function": "linear"}
    name = keys.text("nonlin").rpartition(".")[2]
    if name not in _FUNCTIONS:
        raise keys.wrong("nonlin", f"must be one of {', '.join(_FUNCTIONS)}")
    inside = keys.inside("nonlin_kwargs") if "nonlin_kwargs" in keys else Described({}, keys.where)
    slope = {"LeakyReLU": "negative_slope", "ELU": "alpha"}.get(name)
    inside.only(("inplace", *([slope] if slope else [])))
    found: dict[str, Any] = {"function": _FUNCTIONS[name]}
    if slope and slope in inside:
        found["slope"] = inside.number(slope)
    return found
