"""Sets flush-to-zero and denormals-are-zero for the calling thread: denormals are 30-80x slower otherwise."""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

# Compiled code is for the host alone, so this is decided once, when modules are loaded.
IS_ARM = platform.machine() in ("aarch64", "arm64")
# FTZ flushes what is computed, DAZ what is read: both are needed. ARM's FZ does both.
FLUSH = 1 << 24 if IS_ARM else 0x8040
"""Bits to set: FZ of the ARM FPCR; FTZ and DAZ of the x86 MXCSR."""


@intrinsic
def float_mode(typingctx: Any) -> Any:
    """Return the thread's floating-point control register."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
        if IS_ARM:
            return builder.call(_function(builder, "llvm.aarch64.get.fpcr", [], _WORD), [])
        slot = builder.alloca(_HALF)
        _mxcsr(builder, "llvm.x86.sse.stmxcsr", slot)
        return builder.zext(builder.load(slot), _WORD)

    return types.int64(), codegen


@intrinsic
def set_float_mode(typingctx: Any, mode: Any) -> Any:
    """Set the thread's floating-point control register to a value returned by `float_mode`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
        if IS_ARM:
            builder.call(_function(builder, "llvm.aarch64.set.fpcr", [_WORD], ir.VoidType()), args)
        else:
            slot = builder.alloca(_HALF)
            builder.store(builder.trunc(args[0], _HALF), slot)
            _mxcsr(builder, "llvm.x86.sse.ldmxcsr", slot)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


# The width of FPCR as LLVM's intrinsic gives it; MXCSR has half of that, and goes through memory.
_WORD = ir.IntType(64)
_HALF = ir.IntType(32)


def _mxcsr(builder: ir.IRBuilder, name: str, slot: Any) -> None:
    pointer = ir.IntType(8).as_pointer()
    function = _function(builder, name, [pointer], ir.VoidType())
    builder.call(function, [builder.bitcast(slot, pointer)])


def _function(builder: ir.IRBuilder, name: str, arguments: list[Any], result: Any) -> Any:
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)
