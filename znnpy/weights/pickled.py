"""Reads pickles as data: an interpreter of their opcodes that calls nothing but what a table of names allows.

Python's own unpickler imports what a pickle names, and lets it call that. This one never imports: a name stays a name
(`Name`), and what is made by calling it stays an empty object (`Inert`), unless the name is in the reader's table.
Each step takes a bounded amount of memory, nothing is recursive, and the number of steps is limited.
"""

from __future__ import annotations

import pickletools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

STEPS = 1 << 20  # a checkpoint of 1000 epochs and 1000 tensors takes some 50,000
_PUSHED = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "STRING", "BINSTRING",
    "SHORT_BINSTRING",
})  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_SKIPPED = frozenset({"PROTO", "FRAME"})


@dataclass(frozen=True)
class Name:
    """A name that a pickle would import; nothing is imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"[:80]


@dataclass(frozen=True, eq=False)
class Inert:
    """What a call of a name that is not in the table would have made: nothing."""

    of: str


class Built(ABC):
    """An object of a reader's own that heeds what a pickle would set as its attributes."""

    @abstractmethod
    def built(self, state: Any) -> Any:
        """Return what takes its place."""


Known = Mapping[Name, Callable[..., Any]]
"""What is called instead of the objects of these names, with the arguments of the pickle: never those objects."""


class UnknownError(ValueError):
    """An opcode, or a use of one, that files of weights do not have."""


def unpickled(data: bytes, known: Known, persistent: Callable[[Any], Any]) -> Any:
    """Return the value of a pickle: numbers, texts, bytes, tuples, lists, dicts, and what `known` makes.

    `persistent` makes what stands for an id that the pickle leaves to its reader. Raises ValueError, or an error of
    `known`, for anything that is no such pickle.
    """
    machine = _Machine(known, persistent)
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if count > STEPS:
            raise UnknownError(f"the pickle takes more than {STEPS:,} steps")
        machine.step(opcode.name, argument)
    return machine.result()


class _Machine:
    """The stack, the marks in it, and the memo of a pickle."""

    def __init__(self, known: Known, persistent: Callable[[Any], Any]) -> None:
        self._known, self._persistent = known, persistent
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def result(self) -> Any:
        """Return the only value that is left."""
        if len(self._stack) != 1 or self._marks:
            raise UnknownError("the pickle leaves more than one value")
        return self._stack[0]

    def step(self, opcode: str, argument: Any) -> None:
        """Execute one opcode."""
        if opcode in _PUSHED:
            self._stack.append(argument)
        elif opcode in _CONSTANTS:
            self._stack.append(_CONSTANTS[opcode])
        elif opcode not in _SKIPPED:
            own = getattr(self, f"_op_{opcode.lower()}", None)
            if own is None:
                raise UnknownError(
                    f"the pickle has the opcode {opcode}, which no file of weights has"
                )
            own(argument)

    def _pop(self) -> Any:
        # Never below the last mark: what lies there belongs to something that is not begun.
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise UnknownError("the pickle takes a value that is not there")
        return self._stack.pop()

    def _top(self) -> Any:
        value = self._pop()
        self._stack.append(value)
        return value

    def _since_mark(self) -> list[Any]:
        if not self._marks:
            raise UnknownError("the pickle ends a group that it did not begin")
        first = self._marks.pop()
        found = self._stack[first:]
        del self._stack[first:]
        return found

    def _op_stop(self, _: Any) -> None:
        return

    def _op_mark(self, _: Any) -> None:
        self._marks.append(len(self._stack))

    def _op_pop(self, _: Any) -> None:
        self._pop()

    def _op_pop_mark(self, _: Any) -> None:
        self._since_mark()

    def _op_empty_tuple(self, _: Any) -> None:
        self._stack.append(())

    def _op_tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._since_mark()))

    def _op_tuple1(self, _: Any) -> None:
        self._stack.append((self._pop(),))

    def _op_tuple2(self, _: Any) -> None:
        last, first = self._pop(), self._pop()
        self._stack.append((first, last))

    def _op_tuple3(self, _: Any) -> None:
        last, middle, first = self._pop(), self._pop(), self._pop()
        self._stack.append((first, middle, last))

    def _op_empty_list(self, _: Any) -> None:
        self._stack.append([])

    def _op_list(self, _: Any) -> None:
        self._stack.append(self._since_mark())

    def _op_append(self, _: Any) -> None:
        value = self._pop()
        self._extend([value])

    def _op_appends(self, _: Any) -> None:
        self._extend(self._since_mark())

    def _extend(self, values: list[Any]) -> None:
        target = self._top()
        if isinstance(target, list):
            target += values
        elif not isinstance(target, Inert):
            raise UnknownError(f"the pickle appends to a {type(target).__name__}")

    def _op_empty_set(self, _: Any) -> None:
        self._stack.append(Inert("set"))

    def _op_frozenset(self, _: Any) -> None:
        self._since_mark()
        self._stack.append(Inert("frozenset"))

    def _op_additems(self, _: Any) -> None:
        self._since_mark()
        if not isinstance(self._top(), Inert):
            raise UnknownError("the pickle adds to what is no set")

    def _op_empty_dict(self, _: Any) -> None:
        self._stack.append({})

    def _op_dict(self, _: Any) -> None:
        values = self._since_mark()
        self._stack.append({})
        self._fill(values)

    def _op_setitem(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._fill([key, value])

    def _op_setitems(self, _: Any) -> None:
        self._fill(self._since_mark())

    def _fill(self, values: list[Any]) -> None:
        target = self._top()
        if isinstance(target, Inert):
            return
        if not isinstance(target, dict) or len(values) % 2:
            raise UnknownError(f"the pickle sets items of a {type(target).__name__}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            # Hashing a tuple is recursive in C, without a limit.
            if not isinstance(key, str | int | float | bytes | None):
                raise UnknownError(f"the pickle has a key of type {type(key).__name__}")
            target[key] = value

    def _op_global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(Name(module, name))

    def _op_stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise UnknownError("the pickle has a name that is no text")
        self._stack.append(Name(module, name))

    def _op_reduce(self, _: Any) -> None:
        arguments, called = self._pop(), self._pop()
        self._stack.append(self._called(called, arguments))

    _op_newobj = _op_reduce

    def _op_newobj_ex(self, _: Any) -> None:
        self._pop(), self._pop()
        self._stack.append(Inert(str(self._name(self._pop()))))

    def _called(self, called: Any, arguments: Any) -> Any:
        if isinstance(called, Inert):
            return called
        name = self._name(called)
        if not isinstance(arguments, tuple):
            raise UnknownError(f"the pickle calls {name} with a {type(arguments).__name__}")
        if name not in self._known or any(isinstance(it, Inert) for it in arguments):
            return Inert(str(name))
        return self._known[name](*arguments)

    def _name(self, called: Any) -> Name:
        if not isinstance(called, Name):
            raise UnknownError(f"the pickle calls a {type(called).__name__}")
        return called

    def _op_build(self, _: Any) -> None:
        """Drop what would become the attributes of an object, unless a known one says what it makes of them."""
        state, built = self._pop(), self._pop()
        self._stack.append(built.built(state) if isinstance(built, Built) else built)

    def _op_binpersid(self, _: Any) -> None:
        self._stack.append(self._persistent(self._pop()))

    def _op_binput(self, place: int) -> None:
        self._memo[place] = self._top()

    _op_put = _op_long_binput = _op_binput

    def _op_memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._top()

    def _op_binget(self, place: int) -> None:
        if place not in self._memo:
            raise UnknownError("the pickle recalls a value that it never kept")
        self._stack.append(self._memo[place])

    _op_get = _op_long_binget = _op_binget
