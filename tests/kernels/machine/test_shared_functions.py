"""Functions that kernels call by name: compiled once, there before what calls them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import types
from numba.core.codegen import CPUCodeLibrary
from numba.extending import intrinsic
from znnpy_kernels import compile
from znnpy_kernels.fft import codelets
from znnpy_kernels.layers.reduction import sum_vectors
from znnpy_kernels.machine import cache
from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.machine.shared_functions import Shared, call, reached, shared
from znnpy_kernels.spectral.filter_tiles import filter_gradient_tiles, filter_tiles

AT = words("target")


@shared
def scaled(number: int, words: Any, factor: float) -> None:
    floats(words[0])[number] = factor


@intrinsic
def scale(typingctx: Any, target: Any) -> Any:
    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        number, factor = (
            context.get_constant(types.int64, 2),
            context.get_constant(types.float64, 0.5),
        )
        memory = b.alloca(args[0].type)
        b.store(args[0], memory)
        call(scaled, context, b, [number, memory, factor])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


scale.shared = scaled


@inlined
def helper(target: int) -> None:
    scale(target)


@kernel(AT)
def first(args, worker):  # type: ignore[no-untyped-def]
    scale(args[AT.target])


@kernel(AT)
def second(args, worker):  # type: ignore[no-untyped-def]
    helper(args[AT.target])
    floats(args[AT.target])[0] = 1.0


@pytest.fixture
def optimised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """With an empty cache and nothing loaded: names of what LLVM optimises."""
    monkeypatch.setenv("ZNNPY_CACHE", str(tmp_path))
    for known in (cache.root, cache.directory):
        monkeypatch.setattr(cache, known.__name__, known.__wrapped__)
    monkeypatch.setattr(scaled, "_compiled", None)
    names: list[str] = []
    real = CPUCodeLibrary._optimize_final_module

    def optimise(library: CPUCodeLibrary) -> None:
        if library.name != "nrt":  # what numba itself needs
            names.append(library.name)
        real(library)

    monkeypatch.setattr(CPUCodeLibrary, "_optimize_final_module", optimise)
    return names


def result(made: Kernel) -> list[float]:
    target = np.zeros(3, np.float32)
    made.run(target=target)
    return target.tolist()


def anew(made: Kernel) -> Kernel:
    return Kernel(made.function, made.words)


def test_shared_functions_are_compiled_once_and_helpers_never_by_themselves(
    optimised: list[str],
) -> None:
    assert result(anew(first)) == [0.0, 0.0, 0.5]
    assert result(anew(second)) == [1.0, 0.0, 0.5]
    assert optimised == ["scaled", "first", "second"]


def test_a_kernel_from_disk_brings_what_it_calls(optimised: list[str]) -> None:
    anew(first).compile()
    scaled._compiled = None  # as in another process
    again = anew(first)
    assert result(again) == [0.0, 0.0, 0.5]
    assert again.compile().cache_hits == scaled.compile().cache_hits == 1
    assert optimised == ["scaled", "first"]


def test_a_shared_function_that_was_lost_is_compiled_again(optimised: list[str]) -> None:
    anew(first).compile()
    scaled._compiled = None
    for path in cache.files(scaled.function):
        path.unlink()
    assert result(anew(first)) == [0.0, 0.0, 0.5]
    assert optimised == ["scaled", "first", "scaled"]


def test_what_a_kernel_calls_is_found_through_its_helpers() -> None:
    assert reached(first.function) == reached(second.function) == {scaled}
    assert reached(sum_vectors.function) == set()
    ways = {name for name, made in vars(codelets).items() if isinstance(made, Shared)}
    forth, back = reached(filter_tiles.function), reached(filter_gradient_tiles.function)
    assert {made.name for made in forth} == {"real", "forward", "turned_forward", "few_forward"}
    assert {made.name for made in back} == {"hermitian", "backward", "few_backward"}
    others = {"cut_forward", "cut_backward", "apart_forward", "apart_backward"}
    assert ways - {made.name for made in forth | back} == others


def test_shared_functions_come_before_those_that_call_them(
    optimised: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [anew(first), anew(second), anew(sum_vectors)]
    jobs = compile._Jobs(compile._missing(wanted))
    one, other = jobs.take(0), jobs.take(1)
    assert (one, other) == (f"{__name__}:scaled", "znnpy_kernels.layers.reduction:sum_vectors")
    assert jobs.finish(one or "") == 1
    assert jobs.take(0) == f"{__name__}:first"  # at once, though `sum_vectors` is not finished
