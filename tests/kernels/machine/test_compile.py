"""Kernels compiled by several processes at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from numba.core.registry import cpu_target
from znnpy_kernels import compile
from znnpy_kernels.layers import gradient_norms, reduction
from znnpy_kernels.machine import cache
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.machine.loading import kept
from znnpy_kernels.winograd import forward, stages


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
    """Two small kernels, not loaded, with an empty cache; nothing else is compiled."""
    monkeypatch.setenv("ZNNPY_CACHE", str(tmp_path))
    monkeypatch.setattr(compile, "RUNTIME", ())
    for known in (cache.root, cache.directory):
        monkeypatch.setattr(cache, known.__name__, known.__wrapped__)
    found = [
        v for m in (reduction, gradient_norms) for v in vars(m).values() if isinstance(v, Kernel)
    ]
    assert len(found) >= 2
    return [Kernel(made.function, made.words) for made in found[:2]]


@pytest.mark.slow
def test_several_processes_share_the_work(kernels: list[Kernel]) -> None:
    heard: list[tuple[int, int]] = []
    count = compile.compile_all(kernels, 2, lambda done, total: heard.append((done, total)))
    assert count == 2
    assert heard == [(1, 2), (2, 2)]
    assert [made.compile().cache_hits for made in kernels] == [1, 1]
    again = [Kernel(made.function, made.words) for made in kernels]
    assert compile.compile_all(again, 2, lambda done, total: heard.append((done, total))) == 0
    assert len(heard) == 2


@pytest.mark.slow
def test_an_interrupt_ends_the_processes(
    kernels: list[Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[compile.subprocess.Popen[str]] = []
    real = compile.subprocess.Popen

    def popen(*words: object, **named: object) -> object:
        started.append(real(*words, **named))  # type: ignore[call-overload]
        return started[-1]

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compile.subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        compile.compile_all(kernels, 2, interrupt)
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def of_form(taps: str) -> list[Kernel]:
    """Kernels of several modules for filters of so many taps, which share helpers that are compiled for them alone."""
    found = (it for module in (forward, stages) for it in vars(module).values())
    kernels = [it for family in found if isinstance(family, dict) for it in family.values()]
    return [it for it in kernels if isinstance(it, Kernel) and it.name.endswith(f"_{taps}")]


def test_kernels_of_one_form_are_compiled_by_one_process() -> None:
    first, second = of_form("1x3x3"), of_form("3x3x1")
    assert len(first) == len(second) > 3
    jobs = compile._Jobs({kernel: set() for kernel in (*first, *second)})
    taken = [[jobs.take(process) for process in range(2)] for _ in first]
    assert jobs.take(0) is None
    for own in zip(*taken, strict=True):
        assert len({name.rpartition("_")[2] for name in own if name}) == 1


def test_what_calls_an_unfinished_function_is_passed_over_but_never_in_order() -> None:
    shared, (one, other, *_), (apart, *_) = (
        reduction.sum_vectors,
        of_form("1x3x3"),
        of_form("3x3x1"),
    )
    jobs = compile._Jobs({shared: set(), one: set(), other: {shared}, apart: set()})  # type: ignore[arg-type]
    for process, kernel in ((0, shared), (1, one)):
        assert jobs.take(process) == compile._name(kernel)
    assert jobs._next(1) == 1  # else it would wait, and one that is alone for ever
    assert jobs.take(1) == compile._name(apart)
    jobs.finish(compile._name(shared))
    assert jobs.take(1) == compile._name(other)


def test_what_runs_kernels_is_compiled_with_them() -> None:
    assert {native.name for native in compile.RUNTIME} >= {"work", "release", "wait", "run"}
    for native in compile.RUNTIME:
        module = __import__(native.__module__, fromlist=[native.name])
        assert getattr(module, native.name) is native


def test_what_another_cpu_compiled_is_compiled_for_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a home directory of several computers, whose processes would wait for one that compiles all."""
    made = next(value for value in vars(reduction).values() if isinstance(value, Kernel))
    made.compile()
    assert compile.on_disk(made)
    codegen = type(cpu_target.target_context.codegen())
    monkeypatch.setattr(codegen, "magic_tuple", lambda self: ("x86_64-unknown-linux", "other", ""))
    assert not compile.on_disk(made)


def test_an_index_cut_short_holds_nothing(tmp_path: Path) -> None:
    made = next(value for value in vars(reduction).values() if isinstance(value, Kernel))
    made.compile()
    (index,) = cache.files(made.function, "nbi")
    (tmp_path / index.name).write_bytes(index.read_bytes()[:-9])
    assert not kept(made.function, tmp_path)
