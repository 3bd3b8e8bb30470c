"""PyTorch's .pth and .pt files (zip form): tensors, dicts, lists, numbers and texts, without PyTorch.

A zip archive with ROOT/data.pkl, a pickle, and ROOT/data/KEY, plain numbers, stored uncompressed: each is read once,
when a tensor of it is asked for, so that no more memory is taken than the file has bytes. No code of the file runs
(`weights/pickled.py`).
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from znnpy.errors import ModelFileError, reason
from znnpy.weights.pickled import unpickled
from znnpy.weights.stored_tensor import BFLOAT16, Array, Storage
from znnpy.weights.torch_names import KNOWN, storage_type

PICKLE = 16 << 20  # bytes of the pickle; that of a large checkpoint has 1 MiB
DIRECTORY = 16 << 20  # bytes of the list of members, of which Python makes ten times as many
_END = struct.Struct("<4s4H2LH")
_WIDE = 0xFFFFFFFF  # where a number is in a zip64 record
_LOCAL = struct.Struct("<4s5H3L2H")
_DAMAGE = (
    ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, EOFError, OSError, RuntimeError,
    struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def read_torch(path: Path) -> Any:
    """Return what `torch.save` wrote: dicts, lists, tuples, numbers, texts, and a `Tensor` for each tensor.

    Everything else that the file names is an `Inert` object. Tensors are read when their `array` is asked for, and
    must be asked while the file stays as it is. Raises ModelFileError for files of other formats, damaged ones, and
    those that hold what files of weights do not hold.
    """
    try:
        return _Archive(path).value()
    except ModelFileError:
        raise
    except _DAMAGE as error:
        raise _unsound(path, error) from error


def _unsound(path: Path, error: BaseException) -> ModelFileError:
    return ModelFileError(f"{path} is no sound PyTorch file: {reason(error)[:200]}")


class _Archive:
    """The archive: where its members lie in the file, and those that were read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        _refuse_others(path)
        self._size = path.stat().st_size
        with path.open("rb") as file:
            _refuse_long_directory(file, self._size)
            with zipfile.ZipFile(file) as archive:
                self._members = {info.filename: info for info in archive.infolist()}
        self._root = _root(self._members, path)
        self._found: dict[str, Array] = {}

    def value(self) -> Any:
        """Return what the pickle describes."""
        order = self._members.get(f"{self._root}byteorder")
        if order is not None and bytes(self._raw(order.filename)) != b"little":
            raise ModelFileError(f"{self._path} holds numbers in big-endian order: save it anew")
        pickle = f"{self._root}data.pkl"
        if self._members[pickle].file_size > PICKLE:
            raise ValueError("its pickle is larger than those of weights are")
        return unpickled(self._raw(pickle).tobytes(), KNOWN, self._storage)

    def _storage(self, pid: Any) -> Storage:
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
            raise ValueError("it stores something other than numbers")
        _, kind, key, _, count = pid
        name, dtype = f"{self._root}data/{key}", storage_type(kind)
        size = 2 if dtype == BFLOAT16 else np.dtype(dtype).itemsize
        if not isinstance(key, str) or name not in self._members:
            raise ValueError("numbers are missing")
        if type(count) is not int or count * size != self._members[name].file_size:
            raise ValueError(f"{name[:60]} has another size than its tensors say")
        return Storage(key, dtype, count, lambda: self._raw(name))

    def _raw(self, name: str) -> Array:
        """Return the bytes of a member."""
        if name not in self._found:
            try:
                self._found[name] = self._plain(self._members[name])
            except _DAMAGE as error:
                raise _unsound(self._path, error) from error
        return self._found[name]

    def _plain(self, info: zipfile.ZipInfo) -> Array:
        """Return the bytes of a member that is stored as it is."""
        name = info.filename[:60]
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"{name} is compressed, which PyTorch never does")
        head = _LOCAL.unpack(self._piece(info.header_offset, _LOCAL.size).tobytes())
        if head[0] != b"PK\3\4" or head[2] & 1:
            raise ValueError(f"{name} does not lie where the list of members says, or is encrypted")
        found = self._piece(info.header_offset + _LOCAL.size + head[9] + head[10], info.file_size)
        if zlib.crc32(found.data) != info.CRC:
            raise ValueError(f"{name} is not what its checksum says")
        return found

    def _piece(self, start: int, size: int) -> Array:
        # Before memory is taken for it.
        if not 0 <= start <= start + size <= self._size:
            raise ValueError("a member lies outside the file")
        with self._path.open("rb") as file:
            file.seek(start)
            found = np.fromfile(file, np.uint8, size)
        if found.size != size:
            raise EOFError("the file was cut short")
        return found


def _refuse_others(path: Path) -> None:
    if not path.is_file():
        raise ModelFileError(f"{path} is no file")
    with path.open("rb") as file:
        head = file.read(16)
    if head.startswith(b"PK\3\4"):
        return
    if head[:1] == b"\x80" or b"\x8a\nl\xfc\x9cF\xf9 j\xa8P" in head:
        raise ModelFileError(
            f"{path} has the form of PyTorch before 1.6, a bare pickle: load it there and save it again by torch.save"
        )
    raise ModelFileError(f"{path} is no PyTorch file: those are zip archives")


def _refuse_long_directory(file: BinaryIO, size: int) -> None:
    """Refuse a list of members that would take much memory, before it is read."""
    file.seek(max(0, size - _END.size - (1 << 16)))
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < _END.size:
        raise ValueError("the list of its members is missing: it is cut short")
    length = _END.unpack_from(tail, at)[5]
    wide = tail.rfind(b"PK\6\6", 0, at)
    if wide >= 0 and len(tail) - wide >= 48:
        own = 0 if length == _WIDE else length
        length = max(own, struct.unpack_from("<Q", tail, wide + 40)[0])
    if length > DIRECTORY:
        raise ValueError("the list of its members is longer than those of weights are")


def _root(members: dict[str, Any], path: Path) -> str:
    """Return the folder of the archive that holds the pickle."""
    found = [name.removesuffix("data.pkl") for name in members if name.endswith("/data.pkl")]
    roots = [name for name in found if name.count("/") == 1]
    if len(roots) != 1:
        raise ModelFileError(f"{path} is a zip archive, but none of PyTorch's: it has no data.pkl")
    if f"{roots[0]}constants.pkl" in members:
        raise ModelFileError(
            f"{path} is TorchScript, a program: save the weights, torch.save(model.state_dict(), ...)"
        )
    return roots[0]
