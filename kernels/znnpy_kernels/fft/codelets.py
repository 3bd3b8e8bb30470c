"""FFT codelets: straight-line transforms of lines, LANES lines abreast, a compiled function for each size and kind.

The elements of a line are vectors of LANES floats (real) or two vectors, real and imaginary parts
(complex). Each function transforms many lines of one length, with any steps between elements and
between lines. Real lines may lie in part outside of an image: only a range of their elements is read
(the others are zeros) or written. So it is with complex lines that are `cut`: forward they read a range,
backward they write one. Which kinds there are: `Kind`.

Lines come in groups, so that two steps lead from line to line. While a complex line is transformed,
memory is asked for elements that will be wanted soon: `ahead` has steps of its own. A function
is called, never inlined: its code is long, and few callers need its constants.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from znnpy_kernels.fft.codelet_networks import (
    INPUT,
    PRODUCT,
    Network,
    Node,
    complex_network,
    hermitian_network,
    real_network,
)
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.shared_functions import Shared, call, shared
from znnpy_kernels.simd.codegen import FLOAT, VECTOR, WORD, ZERO_VECTOR, Value, counted_loop, word
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES

# Sizes with small primes that are close enough to each other for tiles; 1 for axes without taps. Odd ones are those
# that dilated layers fill: 5 and 15 outputs of 3 taps, 7 of 5, 9 of 7. Each takes compile time for each kind.
SIZES = (1, 6, 7, 8, 10, 11, 12, 14, 15, 16, 17, 18, 20, 22, 24, 28, 30, 32)


class Kind(enum.Enum):
    """The kind of a codelet: what it transforms, and its last two parameters (`option`, `factor`)."""

    FORWARD = "forward"
    """Complex lines; option 1: the inverse, unnormalised."""
    BACKWARD = "backward"
    """Complex lines; the inverse, unnormalised."""
    REAL = "real"
    """Real lines to the first half of their spectra, whose imaginary parts `factor` multiplies."""
    HERMITIAN = "hermitian"
    """Half spectra to `factor` times real lines, unnormalised, plus the vector at `spare` + BIAS, but
    no less than that at `spare` + FLOOR. All but `parts` elements from `option` on are added to the target
    instead of the bias."""


# Filters of few taps have functions of their own, which leave out zeros and unwanted elements.
# Up to 4 taps: 3^3 and 4^3 filters are the most common, and larger ones have fewer zeros to leave out.
FEW = 4


def _network(kind: Kind, size: int, few: bool) -> Network:
    if kind is Kind.REAL:
        return real_network(size)
    if kind is Kind.HERMITIAN:
        return hermitian_network(size)
    some = min(FEW, size) if few else size
    back = kind is Kind.BACKWARD
    # Back from all of a spectrum to the first elements, forward from these.
    return complex_network(size, size if back else some, some if back else size)


class End(NamedTuple):
    """The place of lines: address of element 0 of the first, bytes to the next element, line and group."""

    place: Any
    step: Any
    line: Any
    group: Any


class Lines(NamedTuple):
    """Lines to transform, addresses and steps in bytes.

    Of a real or cut line `count` elements from `first` on are in range. `ahead`: what is asked for
    meanwhile. `spare` holds two vectors of zeros, room for two that nobody reads, then at ONES, BIAS and
    FLOOR one vector each. `parts`: from the real part of an element to its imaginary part, in what complex
    lines forward write, and backward read; `ahead_parts`: the same in what is asked for. Both are
    VECTOR_BYTES but for lines that are `apart`; of cut lines `parts` may be anything as well. `option`:
    forward, 1 exchanges real and imaginary parts; Hermitian, the first of `parts` elements that are stored, while
    all others are added to what stands there.
    """

    source: Any
    target: Any
    ahead: Any
    lines: Any
    groups: Any
    first: Any
    count: Any
    spare: Any
    option: Any
    parts: Any
    ahead_parts: Any


NOTHING: Mapping[str, int] = {}
# In the order of `Lines`, whose first three fields are ends.
ENDS = ("source", "target", "ahead")
# Words of a call, in the order in which `_called` stores them: ends field by field, then the rest.
PARAMETERS = (
    tuple(name if field == "place" else f"{name}_{field}" for name in ENDS for field in End._fields)
    + Lines._fields[len(ENDS) :]
)
# Behind the zeros (0, 1) and the room that nobody reads (2, 3).
ONES, BIAS, FLOOR = (vectors * VECTOR_BYTES for vectors in (4, 5, 6))
# A power of two, so that what follows in scratch keeps its alignment to a cache line.
SPARE_BYTES = 8 * VECTOR_BYTES


def _range(b: ir.IRBuilder, end: str, size: int, given: dict[str, Value]) -> list[Any]:
    """Masks and offsets that lead from a line to its elements, or to spare room, in two steps."""
    spare = given["spare"]
    if end == "target":
        # What is out of range is written to the room that nobody reads.
        spare = b.add(spare, word(2 * VECTOR_BYTES))
    found = []
    for element in range(size):
        # Unsigned: an element before `first` wraps round to a number above any count.
        inside = b.icmp_unsigned("<", b.sub(word(element), given["first"]), given["count"])
        # Both steps without a branch: the line's address is masked away where the element is outside.
        offset = b.select(inside, b.mul(given[f"{end}_step"], word(element)), spare)
        found.append((b.sext(inside, WORD), offset))
    return found


# Of each kind: vectors of an element of the source, of the target.
_VECTORS = {
    Kind.FORWARD: (2, 2),
    Kind.BACKWARD: (2, 2),
    Kind.REAL: (1, 2),
    Kind.HERMITIAN: (2, 1),
}


def _starts(b: ir.IRBuilder, kind: Kind, given: dict[str, Value]) -> dict[str, Value]:
    """Return where vectors of the first element begin; with real and imaginary exchanged it is an inverse."""
    # ifft(x) is fft with real and imaginary parts exchanged, before and after: so one network serves both ways.
    found: dict[str, Value] = {}
    for end, vectors in zip(("source", "target"), _VECTORS[kind], strict=True):
        first, last = word(0), word(VECTOR_BYTES)
        if _asks(kind) and end == ("target" if kind is Kind.FORWARD else "source"):
            last = given["parts"]
        if kind is Kind.FORWARD:
            turned = b.icmp_signed("!=", given["option"], word(0))
            first, last = b.select(turned, last, first), b.select(turned, first, last)
        elif kind is Kind.BACKWARD:
            first, last = last, first
        parts = (first, last) if vectors == 2 else (word(0),)
        found |= {f"{end}{part}": b.add(given[end], at) for part, at in enumerate(parts)}
    return found | ({"ahead": given["ahead"]} if _asks(kind) else {})


def _asks(kind: Kind) -> bool:
    return kind in (Kind.FORWARD, Kind.BACKWARD)


class _Line:
    """Emits the transform of one line; `given` holds the parameters and where this line begins."""

    def __init__(
        self,
        b: ir.IRBuilder,
        kind: Kind,
        net: Network,
        given: dict[str, Value],
        ranged: str,
        ranges: list[Any],
    ) -> None:
        self.b, self.kind, self.net, self.given = b, kind, net, given
        self.values: dict[int, Value] = {}
        self.uses = self._uses()
        self.added = self.multiplied = 0
        self.ranged, self.ranges = ranged, ranges

    def _uses(self) -> dict[int, list[Node]]:
        """Return the nodes that use each node, of those that lead to an output."""
        needed = self.net.needed()
        users: dict[int, list[Node]] = {}
        for node in self.net.nodes:
            if needed[node.number] and node.kind != INPUT:
                for operand in {node.left, node.right} - {-1}:
                    users.setdefault(operand, []).append(node)
        return users

    def place(self, end: str, index: int) -> Value:
        """Address of vector `index` of the source or target, or of spare room where out of range."""
        b, vectors = self.b, _VECTORS[self.kind][end == "target"]
        element, part = divmod(index, vectors)
        start = self.given[f"{end}{part}"]
        if end == self.ranged:
            inside, offset = self.ranges[element]
            # Outside, the mask leaves 0 of the address, and the offset is that of the spare room.
            return b.add(b.and_(start, inside), offset)
        return b.add(start, b.mul(self.given[f"{end}_step"], word(element)))

    def pointer(self, address: Value) -> Value:
        return self.b.inttoptr(address, VECTOR.as_pointer())

    def load(self, index: int) -> Value:
        """Input `index` of the network."""
        if self.kind is Kind.BACKWARD:
            self.ask(index)
        return self.b.load(self.pointer(self.place("source", index)), align=4)

    def ask(self, index: int) -> None:
        """Prefetch the cache line that lies in `ahead` as vector `index` does in this line."""
        b, element = self.b, index // 2
        address = b.add(self.given["ahead"], b.mul(self.given["ahead_step"], word(element)))
        if index % 2:
            address = b.add(address, self.given["ahead_parts"])
        if self.ranged:  # elements out of range are never read
            # Outside of the range they become the spare room's: a line that is in the cache anyway.
            spare = self.given["spare"]
            address = b.add(b.and_(b.sub(address, spare), self.ranges[element][0]), spare)
        prefetch(b, address)

    def value(self, number: int) -> Value:
        """The value of a node, emitted at its first use."""
        if number not in self.values:
            self.values[number] = self._emit(self.net.nodes[number])
        return self.values[number]

    def _emit(self, node: Node) -> Value:
        if node.kind == INPUT:
            return self.load(node.left)
        if node.kind == PRODUCT:
            self.multiplied += 1
            return self.b.fmul(self.value(node.left), constant(node.constant))
        return self._sum(node)

    def _sum(self, node: Node) -> Value:
        b = self.b
        left, right = self.net.nodes[node.left], self.net.nodes[node.right]
        # Products that only sums take are fused; the product itself is never made.
        if self._fusable(right):
            self.multiplied += 1
            factor = constant(node.constant * right.constant)
            return fma(b, self.value(right.left), factor, self.value(left.number))
        if self._fusable(left):
            self.multiplied += 1
            other = self.value(right.number)
            other = other if node.constant > 0 else b.fneg(other)
            return fma(b, self.value(left.left), constant(left.constant), other)
        x, y = self.value(left.number), self.value(right.number)
        # Some additions become multiply-adds by one, which round the same: where both have units of their own, all
        # of them have work. `one` comes from memory, as LLVM would turn a constant back into an addition.
        if self.kind not in (Kind.REAL, Kind.HERMITIAN) and self.added > self.multiplied:
            self.multiplied += 1
            return fma(b, y if node.constant > 0 else b.fneg(y), self.given["one"], x)
        self.added += 1
        return b.fadd(x, y) if node.constant > 0 else b.fsub(x, y)

    def _fusable(self, node: Node) -> bool:
        """A product that nothing but sums take, and no output."""
        if node.kind != PRODUCT or any(value and value[1] is node for value in self.net.outputs):
            # A product that is an output must be made anyway, and one that products take cannot be fused.
            return False
        return all(user.kind not in (INPUT, PRODUCT) for user in self.uses[node.number])

    def signed(self, index: int) -> Value:
        """Output `index` of the network."""
        value = self.net.outputs[index]
        if value is None:
            return ZERO_VECTOR
        made = self.value(value[1].number)
        return made if value[0] > 0 else self.b.fneg(made)

    # In the order of the network: recursive transforms keep few values alive that way; each is stored as soon
    # as it is known, which frees its register.
    def emit(self) -> None:
        """The whole line, in the order in which the network was made; stores as soon as known."""
        pending: dict[int, list[int]] = {}
        for index, output in enumerate(self.net.outputs):
            pending.setdefault(-1 if output is None else output[1].number, []).append(index)
        for index in pending.pop(-1, ()):
            self.store(index)
        needed = self.net.needed()
        for node in self.net.nodes:
            here = needed[node.number] and node.kind != INPUT and not self._fusable(node)
            if not here and node.number not in pending:
                continue
            self.value(node.number)
            for index in pending.get(node.number, ()):
                self.store(index)

    def store(self, index: int) -> None:
        """Output `index` to its place."""
        b, value, address = self.b, self.signed(index), self.place("target", index)
        if self.kind is Kind.HERMITIAN:
            # One comparison for both ends: below the first, the difference wraps to a large number.
            place = b.sub(word(index), self.given["option"])
            added = b.icmp_unsigned(">=", place, self.given["parts"])
            bias = b.add(self.given["spare"], word(BIAS))
            # Bias or old value from one load: the address is chosen, not the value.
            old = b.load(self.pointer(b.select(added, address, bias)), align=4)
            value = maximum(b, self.given["floor"], fma(b, value, self.given["factor"], old))
        # The sign of the imaginary parts makes conjugate spectra. Zeros stay zeros, without an operation.
        elif self.kind is Kind.REAL and index % 2 and value is not ZERO_VECTOR:
            value = b.fmul(value, self.given["factor"])
        b.store(value, self.pointer(address), align=4)
        if self.kind is Kind.FORWARD:
            self.ask(index)


def constant(value: float) -> Value:
    """A float in all lanes."""
    return ir.Constant(VECTOR, [value] * LANES)


def fma(b: ir.IRBuilder, x: Value, y: Value, z: Value) -> Value:
    """x * y + z in one rounding."""
    name = f"llvm.fma.v{LANES}f32"
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(VECTOR, [VECTOR] * 3), name)
    return b.call(function, [x, y, z])


def maximum(b: ir.IRBuilder, x: Value, y: Value) -> Value:
    """The larger of two; y where it is not a number."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def prefetch(b: ir.IRBuilder, address: Value) -> None:
    """Prefetch the cache line at an address for reading, though it may be written.

    Where lines come from beyond the L2 cache, asking for writing took transforms 1.4 times as long.
    """
    number = ir.IntType(32)
    pointer = b.inttoptr(address, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
    name = "llvm.prefetch.p0"
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    b.call(function, [pointer, *(ir.Constant(number, n) for n in (0, 3, 1))])


# The end of a line of which a range of elements is touched; of complex lines where they are cut.
_RANGED = {
    Kind.REAL: "source",
    Kind.HERMITIAN: "target",
    Kind.FORWARD: "source",
    Kind.BACKWARD: "target",
}


def lines_function(
    module: ir.Module, kind: Kind, size: int, few: bool, cut: bool, fixed: Mapping[str, int]
) -> Any:
    """The function that transforms lines of `size`: of the parameters in memory, and the factor.

    Parameters that are `fixed` are constants: addresses then need fewer registers.
    """
    signature = ir.FunctionType(ir.VoidType(), [WORD.as_pointer(), FLOAT])
    function = ir.Function(module, signature, f"lines_{size}")
    function.linkage = "internal"
    # Not inlined: there is one copy for all that call it in this module.
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    # The stack is aligned for vectors that do not fit the registers.
    function.attributes.alignstack = VECTOR_BYTES
    b = ir.IRBuilder(function.append_basic_block("entry"))
    memory, scale = function.args
    given = {
        name: word(fixed[name]) if name in fixed else b.load(b.gep(memory, [word(index)]))
        for index, name in enumerate(PARAMETERS)
    }
    # A sum with itself: elements of the half spectrum count twice (`hermitian_network`).
    if kind is Kind.HERMITIAN and size > 1:
        scale = b.fadd(scale, scale)
    undefined = ir.Constant(VECTOR, ir.Undefined)
    first = b.insert_element(undefined, scale, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    given["factor"] = b.shuffle_vector(first, undefined, lanes)

    for name, place in (("one", ONES), ("floor", FLOOR)):
        address = b.add(given["spare"], word(place))
        given[name] = b.load(b.inttoptr(address, VECTOR.as_pointer()), align=4)
    ranged = _RANGED[kind] if cut or not _asks(kind) else ""
    ranges = _range(b, ranged, size, given) if ranged else []
    starts = _starts(b, kind, given)

    def following(places: list[Value], step: str) -> list[Value]:
        # `source0` and `source1` step as `source` does.
        steps = (given[f"{name.rstrip('01')}_{step}"] for name in starts)
        return [b.add(place, by) for place, by in zip(places, steps, strict=True)]

    def line(_: Value, places: list[Value]) -> list[Value]:
        here = given | dict(zip(starts, places, strict=True))
        _Line(b, kind, _network(kind, size, few), here, ranged, ranges).emit()
        return following(places, "line")

    def group(_: Value, places: list[Value]) -> list[Value]:
        counted_loop(b, given["lines"], places, line, maybe_empty=True)
        return following(places, "group")

    counted_loop(b, given["groups"], list(starts.values()), group, maybe_empty=True)
    b.ret_void()
    return function


def _lines(
    kind: Kind, fixed: Mapping[str, int] = NOTHING, few: bool = False, cut: bool = False
) -> Any:
    """An intrinsic lines(size, words, factor): the functions of all sizes, and a choice among them."""

    def lines(typingctx: Any, size: Any, words: Any, factor: Any) -> Any:
        def codegen(context: Any, b: ir.IRBuilder, sig: Any, args: Any) -> Any:
            factor = b.fptrunc(args[2], FLOAT)
            done = b.append_basic_block("done")
            choice = b.switch(args[0], done)
            for each in SIZES:
                block = b.append_basic_block(f"size{each}")
                choice.add_case(word(each), block)
                b.position_at_end(block)
                b.call(lines_function(b.module, kind, each, few, cut, fixed), [args[1], factor])
                b.branch(done)
            b.position_at_end(done)
            return context.get_dummy_value()

        return types.void(types.int64, types.CPointer(types.int64), types.float64), codegen

    return intrinsic(lines)


# Constants of addresses save registers: see docs/design/compilation.md.
_NEAR = {"ahead_parts": VECTOR_BYTES}
_TOGETHER = _NEAR | {"parts": VECTOR_BYTES}
# Not turned: real and imaginary parts in their own places.
_PLAIN = {"option": 0}
_forward = _lines(Kind.FORWARD, _TOGETHER | _PLAIN)
_turned_forward = _lines(Kind.FORWARD, _TOGETHER | {"option": 1})
_apart_forward = _lines(Kind.FORWARD, _PLAIN)
_few_forward = _lines(Kind.FORWARD, _TOGETHER, few=True)
_cut_forward = _lines(Kind.FORWARD, _NEAR | _PLAIN, cut=True)
_backward = _lines(Kind.BACKWARD, _TOGETHER)
_apart_backward = _lines(Kind.BACKWARD)
_few_backward = _lines(Kind.BACKWARD, _TOGETHER, few=True)
_cut_backward = _lines(Kind.BACKWARD, _NEAR, cut=True)
_real = _lines(Kind.REAL)
_hermitian = _lines(Kind.HERMITIAN)


@shared
def forward(size: int, words: Any, factor: float) -> None:
    """Complex lines forward."""
    _forward(size, words, factor)


@shared
def turned_forward(size: int, words: Any, factor: float) -> None:
    """Complex lines by option 1."""
    _turned_forward(size, words, factor)


@shared
def apart_forward(size: int, words: Any, factor: float) -> None:
    """Complex lines forward, to parts that lie apart."""
    _apart_forward(size, words, factor)


@shared
def backward(size: int, words: Any, factor: float) -> None:
    """Complex lines back."""
    _backward(size, words, factor)


@shared
def apart_backward(size: int, words: Any, factor: float) -> None:
    """Complex lines back, from parts that lie apart."""
    _apart_backward(size, words, factor)


@shared
def few_forward(size: int, words: Any, factor: float) -> None:
    """Complex lines forward, of which the first `FEW` elements are read."""
    _few_forward(size, words, factor)


@shared
def few_backward(size: int, words: Any, factor: float) -> None:
    """Complex lines back, of which the first `FEW` elements are written."""
    _few_backward(size, words, factor)


@shared
def cut_forward(size: int, words: Any, factor: float) -> None:
    """Complex lines forward, of which a range is read."""
    _cut_forward(size, words, factor)


@shared
def cut_backward(size: int, words: Any, factor: float) -> None:
    """Complex lines back, of which a range is written."""
    _cut_backward(size, words, factor)


@shared
def real(size: int, words: Any, factor: float) -> None:
    """Real lines forward."""
    _real(size, words, factor)


@shared
def hermitian(size: int, words: Any, factor: float) -> None:
    """Half spectra to real lines."""
    _hermitian(size, words, factor)


def _called(function: Shared) -> Any:
    """An intrinsic lines(size, `Lines`, factor) that calls a shared function."""

    def lines(typingctx: Any, size: Any, given: Any, factor: Any) -> Any:
        def codegen(context: Any, b: ir.IRBuilder, sig: Any, args: Any) -> Any:
            whole = args[1]
            places: list[tuple[int, ...]] = [
                (end, i) for end in range(len(ENDS)) for i in range(len(End._fields))
            ]
            places += [(i,) for i in range(len(ENDS), len(Lines._fields))]
            # In the entry block, or each call in a loop would take more stack.
            with b.goto_entry_block():
                words = b.alloca(WORD, len(places))
            for index, place in enumerate(places):
                b.store(b.extract_value(whole, place), b.gep(words, [word(index)]))
            call(function, context, b, [args[0], words, args[2]])
            return context.get_dummy_value()

        # A tuple with the same number of words would be taken for it.
        if getattr(given, "instance_class", None) is not Lines:
            raise TypingError(f"lines are given as `Lines`, not {given}")
        return types.void(types.int64, given, types.float64), codegen

    lines.__name__ = lines.__qualname__ = f"{function.name}_lines"
    made = intrinsic(lines)
    # Found by `shared_functions.reached`, which decides what is compiled first.
    made.shared = function
    return made


plain_forward_lines = _called(forward)
turned_forward_lines = _called(turned_forward)
apart_forward_lines = _called(apart_forward)
apart_backward_lines = _called(apart_backward)
backward_lines = _called(backward)
few_forward_lines = _called(few_forward)
few_backward_lines = _called(few_backward)
cut_forward_lines = _called(cut_forward)
cut_backward_lines = _called(cut_backward)
real_lines = _called(real)
hermitian_lines = _called(hermitian)


@inlined
def forward_lines(size: int, given: Any, factor: float) -> None:
    """Complex lines whose parts lie together, by either option."""
    if given.option == 0:
        plain_forward_lines(size, given, factor)
    else:
        turned_forward_lines(size, given, factor)
