"""The names in PyTorch's pickles that mean data, and what is made of them here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from znnpy.weights.pickled import Built, Inert, Known, Name
from znnpy.weights.stored_tensor import BFLOAT16, Storage, Tensor

STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": BFLOAT16,
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "|i1",
    "ByteStorage": "|u1", "BoolStorage": "|b1",
}  # fmt: skip
_PLAIN = re.compile(r"[biuf][1248]")
_LONGEST = 1 << 16  # characters of a text that stands for bytes


@dataclass(frozen=True, eq=False)
class _Dtype(Built):
    """The type of a NumPy scalar; numbers alone: an object's bytes would be taken for an address."""

    code: str

    def built(self, state: Any) -> Any:
        """Return the type itself in this order of bytes; else nothing."""
        plain = isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", "|")
        return self if plain else Inert("numpy.dtype")


def storage_type(name: Any) -> str:
    """Return the type of a storage by the name of its class; ValueError for others."""
    if not isinstance(name, Name) or name.module != "torch" or name.name not in STORAGES:
        raise ValueError(f"numbers are stored as {name if isinstance(name, Name) else 'no type'}")
    return STORAGES[name.name]


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
    if not isinstance(storage, Storage) or not isinstance(shape, tuple | list):
        raise ValueError("a tensor is of no storage, or has no shape")
    return Tensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(tensor: Any, *_: Any) -> Any:
    return tensor


def _mapping(*given: Any) -> dict[Any, Any]:
    if given:
        raise ValueError("a dict is made from something")
    return {}


def _dtype(code: Any, *_: Any) -> Any:
    if isinstance(code, str) and _PLAIN.fullmatch(code):
        return _Dtype(code)
    return Inert("numpy.dtype")


def _scalar(dtype: Any, data: Any = b"") -> Any:
    if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
        return Inert("numpy.scalar")
    if len(data) != int(dtype.code[1:]):
        raise ValueError("a number has more or fewer bytes than its type")
    try:
        return np.frombuffer(data, f"<{dtype.code}")[0].item()
    except TypeError:
        return Inert("numpy.scalar")


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or len(text) > _LONGEST or encoding != "latin1":
        raise ValueError("a text is to be encoded in another way than bytes are")
    return text.encode("latin1")


KNOWN: Known = {
    Name("collections", "OrderedDict"): _mapping,
    Name("torch._utils", "_rebuild_tensor_v2"): _tensor,
    Name("torch._utils", "_rebuild_parameter"): _parameter,
    Name("numpy", "dtype"): _dtype,
    Name("numpy.core.multiarray", "scalar"): _scalar,
    Name("numpy._core.multiarray", "scalar"): _scalar,
    Name("_codecs", "encode"): _encoded,
}
