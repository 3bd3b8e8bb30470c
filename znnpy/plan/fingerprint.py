"""Fingerprints what bits depend on besides config, data and seed: the CPU's vectors, the code, the algorithms."""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any

from znnpy_kernels.simd.lanes import LANES, target_features

from znnpy.plan import wisdom
from znnpy.plan.record import Plan

# Those by which LLVM chooses vector instructions for the kernels. Others, such as crypto
# extensions, change no bit and would tell equal machines apart.
_FEATURES = ("avx", "avx2", "fma", "avx512f", "avx512dq", "avx512vl", "neon", "sve")


def vectors() -> dict[str, Any]:
    """Return how a CPU rounds: architecture, lanes, features; JSON-able. Models of equal features round alike."""
    present = {mark.strip() for mark in target_features().split(",")}
    features = " ".join(name for name in _FEATURES if f"+{name}" in present)
    return {"machine": platform.machine(), "lanes": LANES, "features": features}


def fingerprint(plan: Plan) -> str:
    """Return 16 digits, equal on two machines on which the same config, data and seed give the same bits.

    FFTW's own plans of layers by whole-image FFT are not part of it: they are measured (`plan.record` keeps them).
    """
    record = plan.to_record()
    # Why a method was chosen changes no bits.
    methods = {name: layer | {"reason": ""} for name, layer in record.items()}
    # Sorted keys: the same plan in any order of layers gives the same text.
    text = json.dumps([vectors(), wisdom.version(), methods], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
