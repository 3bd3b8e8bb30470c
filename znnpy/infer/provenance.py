"""Provenance of a prediction: digests of weights, plan and normalisation, for the journal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from znnpy.data.values.normalization import Normalisation
from znnpy.network.types import Network, network_digest
from znnpy.plan import Plan


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
    """Return shift and scale of each channel by input node."""
    return {
        name: {"shift": norm.shift.tolist(), "scale": norm.scale.tolist()}
        | ({"not finite": "0"} if norm.replace else {})
        for name, norm in norms.items()
    }
