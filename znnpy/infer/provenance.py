"""Provenance of a prediction: what its values depend on, as its journal records it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from znnpy_kernels.simd.lanes import LANES

from znnpy.data.class_labels import Numbering
from znnpy.data.fingerprint import fingerprint
from znnpy.data.scene import Scene
from znnpy.data.values.scaling import Normalisation
from znnpy.infer.blocks import Field, Region
from znnpy.infer.config_model import Weights
from znnpy.infer.request import Request
from znnpy.network.types import Network, network_digest
from znnpy.plan import Plan


def identity_record(
    weights: Weights, network: Network, scene: Scene, request: Request
) -> dict[str, Any]:
    """Return all that values depend on beside what a plan decides."""
    sources, mask = request.sources or {}, next(iter(scene.masks.values()), None)
    return {
        "weights": weights_digest(network, weights.parameters),
        "input": {n: fingerprint(v, sources.get(n)) for n, v in scene.images.items()},
        "mask": None if mask is None else fingerprint(mask, sources.get("mask")),
        "output": request.node.name,
        "values": _values_record(weights, request),
        "borders": "mirror" if request.mirror else "valid",
        "flips": request.flips,
        "lanes of this CPU": LANES,
    }


def patch_key(weights: Weights, field: Field, region: Region, request: Request) -> str:
    """Return, as a text that serves as a name, what the choice of a patch depends on beside the run."""
    strides = " on the network's own grid" if request.grid else ""
    borders = "mirror" if request.mirror else "valid"
    return (
        f"voxels {list(region.lower)} to {list(region.upper)} of {list(field.shape)}{strides}, "
        f"borders {borders}, conv {weights.config.training.conv}"
    )


def weights_digest(network: Network, parameters: Mapping[str, Any]) -> str:
    """Return a digest of a network with its filters and biases."""
    digest = hashlib.sha256(network_digest(network).encode())
    for name, array in sorted(parameters.items()):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def plan_record(plan: Plan) -> dict[str, Any]:
    """Return a plan's forward pass without the reasons, which say how long something took."""
    record = plan.to_record()
    return {
        name: {k: v for k, v in layer.items() if k != "reason"} for name, layer in record.items()
    }


def norms_record(norms: Mapping[str, Normalisation]) -> dict[str, Any]:
    """Return the numbers of each channel by input node; a digest of those of slices, which are many."""
    return {
        name: _numbers(norm)
        | ({"not finite": "0"} if norm.replace else {})
        | ({"zeros": "0"} if norm.nonzero else {})
        for name, norm in norms.items()
    }


def _numbers(norm: Normalisation) -> dict[str, Any]:
    record = norm.record()
    if not norm.by_slice:
        return dict(record)
    return {"slices": hashlib.sha256(json.dumps(record).encode()).hexdigest()[:32]}


def _values_record(weights: Weights, request: Request) -> str:
    if request.logits:
        return "as they are"
    kind = weights.config.training.loss_of(request.node.name).kind
    return kind if request.numbering is None else f"{_numbered(request.numbering)} by {kind}"


def _numbered(how: Numbering) -> str:
    return f"class numbers from {how.first}" if how.regions is None else f"regions {how.regions}"
