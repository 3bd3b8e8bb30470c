"""Lengths of LZF data, and no byte read beyond them."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest
from znnpy_kernels.data.lzf import decoded_length

LIBC = ctypes.CDLL(None)


def plain_length(data: bytes) -> int:
    """The same in Python."""
    place = length = 0
    while place < len(data):
        code = data[place]
        if code < 32:
            place, length = place + code + 2, length + code + 1
        elif code < 224:
            place, length = place + 2, length + (code >> 5) + 2
        else:
            more = data[place + 1] if place + 1 < len(data) else 0
            place, length = place + 3, length + more + 9
    return length if place == len(data) else -1


def counted(data: bytes) -> int:
    """By compiled code, of data before a page that cannot be read."""
    pages = np.frombuffer(mmap.mmap(-1, 2 * mmap.PAGESIZE), np.uint8)
    end = pages.ctypes.data + mmap.PAGESIZE
    pages[mmap.PAGESIZE - len(data) : mmap.PAGESIZE] = np.frombuffer(data, np.uint8)
    nothing = 0  # PROT_NONE
    assert LIBC.mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), nothing) == 0
    return int(decoded_length(end - len(data), len(data)))


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (b"", 0),
        (b"\x01ab", 2),
        (b"\x1f" + bytes(32), 32),
        (b"\x00a\x20\x00", 1 + 3),
        (b"\x00a\xc0\x00", 1 + 8),
        (b"\x00a\xe0\xff\x00", 1 + 264),
        (b"\x05ab", -1),
        (b"\x00a\x20", -1),
        (b"\x00a\xe0\x01", -1),
        (b"\x00a\xe0", -1),
    ],
)
def test_runs(data: bytes, length: int) -> None:
    assert counted(data) == length


def test_any_bytes_are_counted_as_in_python() -> None:
    random, whole = np.random.default_rng(0), 0
    for size in random.integers(0, 60, 500).tolist():
        data = random.integers(0, 256, size).astype(np.uint8).tobytes()
        assert counted(data) == plain_length(data)
        whole += plain_length(data) >= 0
    assert 10 < whole < 490
