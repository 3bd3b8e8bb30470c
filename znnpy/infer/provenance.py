"""Provenance of a prediction: digests of weights, plan and normalisation, for the journal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from znnpy.data.values.scaling import Normalisation
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
