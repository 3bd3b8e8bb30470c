"""What bits depend on besides config, data and seed: vectors of the CPU, the code, the method of each pass."""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any

from znnpy_kernels.simd.lanes import LANES, target_features

from znnpy.plan import wisdom
from znnpy.plan.record import Plan

_FEATURES = ("avx", "avx2", "fma", "avx512f", "avx512dq", "avx512vl", "neon", "sve")


def vectors() -> dict[str, Any]:
    """What of a CPU decides how it rounds: architecture, lanes, features; JSON-able. A model's name rounds nothing."""
    present = {mark.strip() for mark in target_features().split(",")}
    features = " ".join(name for name in _FEATURES if f"+{name}" in present)
    return {"machine": platform.machine(), "lanes": LANES, "features": features}


def fingerprint(plan: Plan) -> str:
    """16 digits that two machines have in common if the same config, data and seed give the same bits on both.

    Not in it: FFTW's own plans of layers by whole-image FFT, which are measured (`plan.record` keeps them).
    """
    record = plan.to_record()
    methods = {name: layer | {"reason": ""} for name, layer in record.items()}
    text = json.dumps([vectors(), wisdom.version(), methods], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
