"""What a description says of the tensors of its net, in both formats alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from znnpy.errors import ModelFileError
from znnpy.interop.bioimageio.steps import AXES, LETTERS, Step
from znnpy.interop.described import Described

NEW, OLD = "0.5", "0.4"


@dataclass(frozen=True)
class Tensor:
    """`axes` by name, batch, channel, z, y, x; `fixed`: sizes (z, y, x) if there is one alone; `test`: its values."""

    name: str
    axes: Sequence[str]
    steps: Sequence[Step]
    test: Any
    fixed: tuple[int, int, int] | None
    where: str

    def solid(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array of these axes as (batch, channel, z, y, x); ModelFileError where it has others."""
        if array.ndim != len(self.axes):
            raise ModelFileError(
                f"{self.where}: its test tensor has shape {array.shape}, and axes {' '.join(self.axes)}"
            )
        there = [axis for axis in AXES if axis in self.axes]
        moved = array.transpose([self.axes.index(axis) for axis in there])
        shape = dict(zip(there, moved.shape, strict=True))
        return moved.reshape([shape.get(axis, 1) for axis in AXES])


def version_of(said: Described) -> str:
    """Return the format, 0.4 or 0.5."""
    found = ".".join(said.text("format_version").split(".")[:2])
    if found not in (OLD, NEW):
        raise said.wrong("format_version", f"must be {OLD} or {NEW}")
    if said.values.get("type", "model") != "model":
        raise said.wrong("type", "must be model")
    return found


def tensors(said: Described, key: str) -> list[Tensor]:
    """Return the tensors that a description lists as `inputs` or `outputs`."""
    old = version_of(said) == OLD
    found = []
    for number, entry in enumerate(said.listed(key)):
        if not isinstance(entry, dict):
            raise said.wrong(key, "must be a list of mappings")
        inner = Described(entry, f"{said.where}: {key}: {number}")
        found.append(_old(said, inner, key, number) if old else _new(inner, key))
    return found


def _steps(inner: Described, key: str, named: str) -> list[Step]:
    word = "preprocessing" if key == "inputs" else "postprocessing"
    found = []
    for number, entry in enumerate(inner.listed(word) if word in inner else ()):
        if not isinstance(entry, dict):
            raise inner.wrong(word, "must be a list of mappings")
        step = Described(entry, f"{inner.where}: {word}: {number}")
        kwargs = step.inside("kwargs") if "kwargs" in step else Described({}, step.where)
        found.append(
            Step(step.text(named), Described(kwargs.values, f"{step.where}: {step.text(named)}"))
        )
    return found


def _old(said: Described, inner: Described, key: str, number: int) -> Tensor:
    letters = inner.text("axes")
    if not set(letters) <= set(LETTERS) or len(set(letters)) < len(letters):
        raise inner.wrong("axes", f"must be letters of {''.join(LETTERS)}, each once")
    axes = [LETTERS[letter] for letter in letters]
    word = f"test_{key}"
    tests = said.listed(word) if word in said else []
    shape = inner.values.get("shape")
    sizes = shape if isinstance(shape, list) and all(type(n) is int for n in shape) else None
    return Tensor(
        inner.text("name"), axes, _steps(inner, key, "name"), tests[number] if number < len(tests) else None,
        _fixed(axes, sizes), inner.where,
    )  # fmt: skip


def _new(inner: Described, key: str) -> Tensor:
    axes, sizes = list[str](), list[Any]()
    for entry in inner.listed("axes"):
        if not isinstance(entry, dict):
            raise inner.wrong("axes", "must be a list of mappings")
        kind, name = entry.get("type"), entry.get("id")
        found = kind if kind in ("batch", "channel") else name
        if found not in AXES or found in axes:
            raise inner.wrong(
                "axes", f"must be batch, channel, z, y and x, each once; found {str(found)[:40]}"
            )
        axes.append(str(found))
        sizes.append(entry.get("size"))
    return Tensor(
        inner.text("id"), axes, _steps(inner, key, "id"), inner.values.get("test_tensor"), _fixed(axes, sizes),
        inner.where,
    )  # fmt: skip


def _fixed(axes: Sequence[str], sizes: Sequence[Any] | None) -> tuple[int, int, int] | None:
    """Return sizes along z, y, x where each is one number."""
    if sizes is None or len(sizes) != len(axes):
        return None
    by_name = dict(zip(axes, sizes, strict=True))
    z, y, x = (by_name.get(axis, 1) for axis in AXES[2:])
    return (z, y, x) if all(type(n) is int and n > 0 for n in (z, y, x)) else None
