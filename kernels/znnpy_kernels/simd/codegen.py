"""LLVM code generation for intrinsics: loads, stores, masks, multiply-adds and loops on vectors of LANES floats.

All functions here run while a kernel is compiled: they take and return LLVM values. Addresses are int64 values in
bytes; steps and offsets are int64 values in floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from llvmlite import ir

from znnpy_kernels.simd.lanes import LANES

# Types of all that kernels handle: words, and vectors whose width is the CPU's.
WORD = ir.IntType(64)
FLOAT = ir.FloatType()
DOUBLE = ir.DoubleType()
VECTOR = ir.VectorType(FLOAT, LANES)
ZERO_VECTOR = ir.Constant(VECTOR, [0.0] * LANES)
Value = Any
Body = Callable[[Value, list[Value]], list[Value]]


def word(value: int) -> Value:
    """Return a constant int64."""
    return ir.Constant(WORD, value)


def float_pointer(builder: ir.IRBuilder, address: Value) -> Value:
    """Return an address in bytes as a pointer to floats."""
    return builder.inttoptr(address, FLOAT.as_pointer())


def moved(builder: ir.IRBuilder, pointer: Value, step: Value | int) -> Value:
    """Return the pointer `step` floats further on."""
    return builder.gep(pointer, [word(step) if isinstance(step, int) else step])


def load_vector(builder: ir.IRBuilder, pointer: Value) -> Value:
    """Load LANES floats from a pointer to floats of any alignment."""
    # Alignment of a float: channels and rows begin anywhere. On CPUs with AVX, unaligned loads of aligned
    # addresses cost nothing.
    return builder.load(builder.bitcast(pointer, VECTOR.as_pointer()), align=4)


def store_vector(builder: ir.IRBuilder, value: Value, pointer: Value) -> None:
    """Store LANES floats to a pointer to floats of any alignment."""
    builder.store(value, builder.bitcast(pointer, VECTOR.as_pointer()), align=4)


def load_broadcast(builder: ir.IRBuilder, pointer: Value) -> Value:
    """Load one float into all lanes; LLVM folds it into the instruction that uses it where it can."""
    return broadcast(builder, builder.load(pointer))


def broadcast(builder: ir.IRBuilder, value: Value) -> Value:
    """Return one float in all lanes."""
    # A shuffle with all zeros, which LLVM selects as a broadcast instruction.
    undefined = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return shuffled(builder, first, undefined, [0] * LANES)


def shuffled(builder: ir.IRBuilder, low: Value, high: Value, lanes: Sequence[int]) -> Value:
    """Return the lanes named: those of `low` count from 0, those of `high` from LANES."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(lanes))
    return builder.shuffle_vector(low, high, mask)


def first_lanes(builder: ir.IRBuilder, count: Value) -> Value:
    """Return a mask of the first `count` lanes."""
    words = ir.VectorType(count.type, LANES)
    empty = ir.Constant(words, ir.Undefined)
    first = builder.insert_element(empty, count, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    counts = builder.shuffle_vector(first, empty, zeros)
    # Lane numbers below the count: a comparison gives a mask register without a table.
    return builder.icmp_signed("<", ir.Constant(words, list(range(LANES))), counts)


def load_first(builder: ir.IRBuilder, pointer: Value, count: int) -> Value:
    """Load the first `count` floats at a pointer, zeros in the other lanes; nothing else is read."""
    # A whole vector needs no mask.
    if count == LANES:
        return load_vector(builder, pointer)
    place = builder.bitcast(pointer, VECTOR.as_pointer())
    return _masked(builder, "load", VECTOR, [place, _ALIGN, _first(count), ZERO_VECTOR])


def store_first(builder: ir.IRBuilder, value: Value, pointer: Value, count: int) -> None:
    """Store the first `count` lanes to a pointer; nothing else is written."""
    if count == LANES:
        store_vector(builder, value, pointer)
        return
    place = builder.bitcast(pointer, VECTOR.as_pointer())
    _masked(builder, "store", ir.VoidType(), [value, place, _ALIGN, _first(count)])


def store_masked(builder: ir.IRBuilder, value: Value, pointer: Value, mask: Value) -> None:
    """Store the lanes of a mask to a pointer; nothing else is written."""
    place = builder.bitcast(pointer, VECTOR.as_pointer())
    _masked(builder, "store", ir.VoidType(), [value, place, _ALIGN, mask])


# Of masked operations, in bytes: as of whole vectors, a float's.
_ALIGN = ir.Constant(ir.IntType(32), 4)


def _first(count: int) -> Value:
    bits = [int(lane < count) for lane in range(LANES)]
    return ir.Constant(ir.VectorType(ir.IntType(1), LANES), bits)


def _masked(builder: ir.IRBuilder, what: str, result: Any, values: list[Value]) -> Value:
    # By the name that LLVM mangles it to: declared once for each module.
    name = f"llvm.masked.{what}.v{LANES}f32.p0"
    function = builder.module.globals.get(name)
    if function is None:
        kinds = [value.type for value in values]
        function = ir.Function(builder.module, ir.FunctionType(result, kinds), name)
    return builder.call(function, values)


def prefetch(builder: ir.IRBuilder, address: Value, *, write: bool, level: int) -> None:
    """Prefetch the cache line at an address in bytes into the cache of this level, 1 to 3."""
    number = ir.IntType(32)
    pointer = builder.inttoptr(address, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
    name = "llvm.prefetch.p0"
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    # 1 is the data cache; 0 would be that of instructions.
    data = 1
    # LLVM counts locality from 3 (keep in all levels) down, levels of caches the other way round.
    hints = [ir.Constant(number, n) for n in (int(write), 4 - level, data)]
    builder.call(function, [pointer, *hints])


def argument(builder: ir.IRBuilder, arguments: Value, number: int) -> Value:
    """Load one word of a kernel's argument block."""
    return builder.load(builder.gep(arguments, [word(number)]))


def multiply_add(builder: ir.IRBuilder, a: Value, b: Value, c: Value) -> Value:
    """Return a * b + c, in one rounding where the CPU has a fused instruction."""
    # `fmuladd`, not `fma`: where a CPU has no fused instruction it is two, and not a call of the math library
    # for each lane.
    name = f"llvm.fmuladd.v{LANES}f32"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), name)
    return builder.call(function, [a, b, c])


def add(builder: ir.IRBuilder, a: Value, b: Value) -> Value:
    """Return a + b."""
    return builder.fadd(a, b)


def counted_loop(
    builder: ir.IRBuilder,
    count: Value,
    carried: Sequence[Value],
    body: Body,
    *,
    maybe_empty: bool = False,
) -> list[Value]:
    """Emit a loop over 0 <= index < count that carries values, such as accumulators, in registers.

    `body(index, values)` emits one turn and returns the new values. Unless `maybe_empty`, the count must be at least
    1.
    """
    entry = builder.block
    block = builder.append_basic_block("turn")
    done = builder.append_basic_block("done")
    if maybe_empty:
        # The test before the first turn; without it a count that is known to be positive saves a branch.
        builder.cbranch(builder.icmp_signed(">", count, word(0)), block, done)
    else:
        builder.branch(block)
    builder.position_at_end(block)
    index = _phi(builder, word(0), entry)
    values = [_phi(builder, value, entry) for value in carried]
    results = body(index, values)
    following = builder.add(index, word(1))
    for phi, result in zip([index, *values], [following, *results], strict=True):
        # `builder.block`, as the body may have added blocks of its own.
        phi.add_incoming(result, builder.block)
    last = builder.block
    builder.cbranch(builder.icmp_signed("<", following, count), block, done)
    builder.position_at_end(done)
    if not maybe_empty:
        return results
    # Values from the loop, or those of the start if there was no turn.
    merged = [_phi(builder, value, entry) for value in carried]
    for phi, result in zip(merged, results, strict=True):
        phi.add_incoming(result, last)
    return merged


def add_outer(
    builder: ir.IRBuilder, vectors: Sequence[Value], places: Iterable[Value], sums: Sequence[Value]
) -> list[Value]:
    """Add each place's float times each vector to sums, those of a place side by side."""
    found = []
    for number, place in enumerate(places):
        factor = load_broadcast(builder, place)
        # Side by side for each place: a place's float is broadcast once and used for all vectors.
        for index, vector in enumerate(vectors, number * len(vectors)):
            found.append(multiply_add(builder, vector, factor, sums[index]))
    return found


def by_count(
    builder: ir.IRBuilder, count: Value, numbers: Iterable[int], emit: Callable[[int], object]
) -> None:
    """Emit code for each of these counts, of which the one equal to `count` runs, or none."""
    done = builder.append_basic_block("stored")
    # A switch over unrolled code: the number of rows decides how many sums are in registers, so it must be a
    # constant of the code.
    choice = builder.switch(count, done)
    for number in numbers:
        choice.add_case(word(number), builder.append_basic_block(f"count{number}"))
        builder.position_at_end(choice.cases[-1][1])
        emit(number)
        builder.branch(done)
    builder.position_at_end(done)


def when(
    builder: ir.IRBuilder, condition: Value, otherwise: Sequence[Value], body: Callable[[], Any]
) -> list[Value]:
    """Return the values that `body` returns if the condition holds, else `otherwise`."""
    return either(builder, condition, body, lambda: otherwise)


def either(
    builder: ir.IRBuilder,
    condition: Value,
    yes: Callable[[], Sequence[Value]],
    no: Callable[[], Sequence[Value]],
) -> list[Value]:
    """Return the values that `yes` returns if the condition holds, else those of `no`."""
    blocks = [builder.append_basic_block(name) for name in ("yes", "no")]
    done = builder.append_basic_block("either")
    builder.cbranch(condition, *blocks)
    found = []
    for block, body in zip(blocks, (yes, no), strict=True):
        builder.position_at_end(block)
        # `builder.block`, as the body may have added blocks of its own.
        found.append((body(), builder.block))
        builder.branch(done)
    builder.position_at_end(done)
    (results, last), (others, end) = found
    merged = [_phi(builder, value, last) for value in results]
    for phi, value in zip(merged, others, strict=True):
        phi.add_incoming(value, end)
    return merged


def _phi(builder: ir.IRBuilder, value: Value, block: Value) -> Value:
    phi = builder.phi(value.type)
    phi.add_incoming(value, block)
    return phi
