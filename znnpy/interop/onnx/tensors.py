"""Tensors of an ONNX file as arrays: sizes are checked before memory is taken, files are those of its folder."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.process_memory import readable
from znnpy.errors import ModelFileError, printable, reason
from znnpy.fields import shown

Array = NDArray[Any]
MOST = 1 << 33  # bytes of all tensors: larger nets do not fit where they would be run
MOST_AXES = 8
# Names of onnx.TensorProto.DataType that nets of the real world have, and how they lie in raw data.
_TYPES = {
    1: "<f4", 2: "<u1", 3: "<i1", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8", 12: "<u4", 13: "<u8", 16: "<u2",
}  # fmt: skip
_BFLOAT16 = 16
_FIELDS = {1: "float_data", 6: "int32_data", 7: "int64_data", 9: "int32_data", 11: "double_data"}


def text_of(given: Any) -> str:
    """Return a text of the file on one line; protocol buffers give bytes where it is no UTF-8."""
    return printable(given if isinstance(given, str) else bytes(given).decode(errors="replace"))


def shape_of(tensor: Any, where: str) -> tuple[int, ...]:
    """Return a tensor's shape; ModelFileError where it is absurd."""
    shape = tuple(int(n) for n in tensor.dims)
    if len(shape) > MOST_AXES or min(shape, default=0) < 0 or prod(shape) * 8 > MOST:
        raise ModelFileError(
            f"{where}: shape {shown(list(shape))} is no tensor's of at most {readable(MOST)}"
        )
    return shape


def array_of(tensor: Any, folder: Path, where: str) -> Array:
    """Return the numbers of a TensorProto; those of bfloat16 as float32."""
    shape = shape_of(tensor, where)
    kind = _TYPES.get(tensor.data_type)
    if kind is None:
        raise ModelFileError(f"{where}: numbers of type {tensor.data_type} are not supported")
    dtype = np.dtype(kind)
    needed = prod(shape) * dtype.itemsize
    if tensor.data_location == 1:
        data = _external(tensor, folder, needed, where)
    elif tensor.HasField("raw_data"):
        data = tensor.raw_data
    else:
        return _listed(tensor, shape, dtype, where)
    if len(data) != needed:
        raise ModelFileError(
            f"{where}: {len(data)} bytes, and its shape {list(shape)} needs {needed}"
        )
    found = np.frombuffer(data, dtype).reshape(shape)
    if tensor.data_type == _BFLOAT16:
        return (found.astype(np.uint32) << 16).view(np.float32)
    return found


def _listed(tensor: Any, shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> Array:
    name = _FIELDS.get(tensor.data_type)
    if name is None:
        raise ModelFileError(f"{where}: numbers of {dtype} must be raw data")
    numbers = np.array(getattr(tensor, name))
    if numbers.size != prod(shape):
        raise ModelFileError(f"{where}: {numbers.size} numbers, and its shape is {list(shape)}")
    return numbers.astype(dtype).reshape(shape)


def _external(tensor: Any, folder: Path, needed: int, where: str) -> bytes:
    """Return bytes that lie in another file, which must be beside the model or below."""
    said = {text_of(entry.key): text_of(entry.value) for entry in tensor.external_data}
    location = said.get("location", "")
    path = (folder / location).resolve() if location and "\0" not in location else folder
    if not location or Path(location).is_absolute() or not path.is_relative_to(folder.resolve()):
        raise ModelFileError(
            f"{where}: its data lie in {location!r}, outside of the model's folder"
        )
    try:
        offset, length = int(said.get("offset", "0")), int(said.get("length", str(needed)))
        if not path.is_file():
            raise ModelFileError(f"{where}: there is no file {path}, which has its data")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if not 0 <= offset <= size or length != needed or offset + length > size:
                raise ModelFileError(
                    f"{where}: bytes {offset} to {offset + length} are not those of its shape in {path}"
                )
            file.seek(offset)
            return file.read(length)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{where}: {path} cannot be read: {reason(error)[:200]}") from error
