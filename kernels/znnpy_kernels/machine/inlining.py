"""Decorators for helpers of kernels: `inlined` merges them into the kernel, `part` leaves that to LLVM."""

from __future__ import annotations

from numba import njit

from znnpy_kernels.machine.linking import PartCompiler

# Without the wrappers for calls from Python and C, which would take most of the compile time. Division by zero gives
# the CPU's result: a kernel cannot raise.
inlined = njit(
    forceinline=True,
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    error_model="numpy",
    pipeline_class=PartCompiler,
)

part = njit(
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    error_model="numpy",
    pipeline_class=PartCompiler,
)
"""Decorator of a helper that LLVM merges into what calls it where it finds that worth the while."""
