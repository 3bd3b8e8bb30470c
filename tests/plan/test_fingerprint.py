"""Which bits are the same on which CPUs: those of equal lanes compute alike, and a fingerprint tells them apart."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from avx2 import on_avx2
from znnpy_kernels.machine import source_hash
from znnpy_kernels.simd.lanes import LANES

from znnpy.plan import LayerPlan, Method, Plan, fingerprint, wisdom
from znnpy.plan.fingerprint import fingerprint as fingerprint_of

SCRIPT = """
    import hashlib
    import sys
    import numpy as np
    from znnpy import Model
    from znnpy.plan import PASSES

    def conv(**keys):
        return {"conv": {"channels": 16, "size": 3, "function": "relu"} | keys}

    def digest(*arrays):
        return hashlib.sha256(b"".join(np.ascontiguousarray(it).tobytes() for it in arrays)).hexdigest()[:16]

    # Two layers of whole vectors: nearly all of the time goes into compiling, once more for the other CPU.
    layers = [conv(), conv(function="elu")]
    for name in sys.argv[1:]:
        plan = {edge: dict.fromkeys(PASSES, name) for edge in ("conv1", "conv2")}
        if name == "spectral":
            plan = {edge: own | {f"{which}_tile": [8, 8, 8] for which in PASSES} for edge, own in plan.items()}
        with Model({"layers": layers}, 6, threads=0, plan=plan, loss="square") as model:
            x = np.random.default_rng(0).standard_normal((1, 1, *model.input_shape)).astype("f4")
            target = (np.random.default_rng(1).random((1, 16, 6, 6, 6)) < 0.3).astype("f4")
            values = digest(model.forward(x))
            for _ in range(2):
                model.step(x, target, learning_rate=0.01)
            print(f"{name} {values} {digest(*model.parameters.values())}")
"""


def computed(*ways: str) -> list[str]:
    """What the script prints of these algorithms on this CPU, or as the environment says."""
    words = [sys.executable, "-c", textwrap.dedent(SCRIPT), *ways]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.slow
def test_cpus_with_the_same_lanes_compute_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As compiled for two CPUs of different makers, whose instructions are chosen and ordered otherwise.

    By one algorithm: to compile for all takes a minute, and what LLVM may do is asked of all kernels below.
    """
    here = computed("direct")
    assert len(here) == 1
    other = {16: "skylake-avx512", 8: "znver2", 4: "nehalem"}[LANES]
    if os.environ.get("NUMBA_CPU_NAME") == other:
        pytest.skip("this is the other CPU")
    monkeypatch.setenv("NUMBA_CPU_NAME", other)
    assert computed("direct") == here


@pytest.mark.slow
@pytest.mark.skipif(
    LANES <= 8, reason="AVX2 is no narrower; SSE does not fuse multiply-adds, and rounds otherwise"
)
def test_forward_passes_by_spectral_tiles_are_the_same_for_any_lanes() -> None:
    (line,) = computed("spectral")
    there = on_avx2("-c", textwrap.dedent(SCRIPT), "spectral")
    assert there[:2] == line.split()[:2]


# By which LLVM may reorder, fuse or approximate as suits the CPU; without them it computes what is written.
FLAGS = r"\b(fast|fastmath|reassoc|contract|arcp|afn|nnan|ninf|nsz)\b|^flags=$"
FAST = re.compile(rf"{FLAGS}|fmuladd|\b(rcp|rsqrt)")


def loosened(text: str) -> list[int]:
    """Lines whose code asks numba, LLVM's builder, or LLVM by a text for arithmetic that is not as written."""
    tree = ast.parse(text)
    remarks = {it.value for it in ast.walk(tree) if isinstance(it, ast.Expr)}  # docstrings
    said = [
        (it.value.lineno, f"{it.arg}=") if isinstance(it, ast.keyword) else (it.lineno, it.value)
        for it in ast.walk(tree)
        if isinstance(it, ast.keyword)
        or (isinstance(it, ast.Constant) and isinstance(it.value, str) and it not in remarks)
    ]
    return sorted(line for line, words in said if FAST.search(words))


def test_nothing_lets_llvm_round_otherwise() -> None:
    """Of all kernels; multiply-adds, of one place, are fused by CPUs with `fma`, which a fingerprint tells."""
    assert loosened("builder.fadd(a, b, flags=['contract'])\nnjit(fastmath=True)\n") == [1, 1, 2]
    assert loosened("njit(**{'fastmath': True})\nf'llvm.fmuladd.v{LANES}f32'\n") == [1, 2]
    texts = source_hash.texts()
    assert len(texts) > 100
    found = {module: lines for module, text in texts.items() if (lines := loosened(text))}
    assert {module: len(lines) for module, lines in found.items()} == {"simd.codegen": 1}


def plan(which: str = "direct", reason: str = "") -> Plan:
    method = Method(which)  # type: ignore[arg-type]
    return Plan({"conv1": LayerPlan.of(method, method, method, reason)})


def test_a_fingerprint_is_of_what_decides_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    known = fingerprint_of(plan())
    assert len(known) == 16
    assert fingerprint_of(plan(reason="measured")) == known
    assert fingerprint_of(plan("winograd")) != known

    def vectors(**other: Any) -> Any:
        found = {"machine": "x86_64", "lanes": 8, "features": "avx avx2 fma"} | other
        monkeypatch.setattr(fingerprint, "vectors", lambda: found)
        return fingerprint_of(plan())

    of_eight = vectors()
    assert vectors(lanes=16) != of_eight
    assert vectors() == of_eight
    monkeypatch.setattr(wisdom, "version", lambda: "another")
    assert fingerprint_of(plan()) != of_eight
