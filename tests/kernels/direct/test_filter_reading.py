"""Filters land in memory packed, as NumPy packs them; where they are not in their file that is told."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from preloading import built, run_with
from znnpy_kernels.direct.filter_reading import read_filters, scratch_floats
from znnpy_kernels.direct.packed_filters import output_groups, pack_filters, packed_size
from znnpy_kernels.simd.lanes import LANES

BEFORE = 96  # bytes


def filters_of(outputs: int, inputs: int, *size: int) -> Any:
    return np.random.default_rng(0).standard_normal((outputs, inputs, *size), np.float32)


def read(file: int, filters: Any, low: int, high: int, groups: tuple[int, int]) -> tuple[Any, int]:
    """Return what is read of inputs low..high of filters in a file, packed, and what was told."""
    outputs, inputs, *size = filters.shape
    taps = int(np.prod(size))
    place = np.array([file, BEFORE + 4 * low * taps, 4 * inputs * taps])
    target = np.full(packed_size(outputs, high - low, taps), np.nan, np.float32)
    failed, floats = np.zeros(1, np.int64), scratch_floats(taps)
    read_filters.run(
        worker=1,
        failed=failed,
        place=place,
        target=target,
        outputs=outputs,
        inputs=high - low,
        taps=taps,
        first_group=groups[0],
        last_group=groups[1],
        scratch=np.empty(2 * floats, np.float32),
        scratch_worker=floats,
    )
    return target, int(failed[0])


@pytest.fixture
def file(tmp_path: Path) -> Any:
    numbers = list[int]()

    def made(filters: Any) -> int:
        path = tmp_path / "file"
        path.write_bytes(bytes(BEFORE) + filters.tobytes())
        numbers.append(os.open(path, os.O_RDWR))
        return numbers[-1]

    yield made
    for number in numbers:
        os.close(number)


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        ((2 * LANES, LANES, 3, 3, 3), (0, LANES)),
        ((5 * LANES - 3, 3 * LANES - 2, 3, 3, 3), (0, 3 * LANES - 2)),  # one vector, and part of it
        ((3 * LANES + 1, 4 * LANES, 1, 3, 3), (LANES, 3 * LANES)),  # as of a join
        ((LANES, 2 * LANES + 1, 1, 1, 2), (1, 2 * LANES)),
        ((2 * LANES, 2 * LANES, 7, 7, 7), (0, 2 * LANES)),  # more than near scratch holds
    ],
)
def test_as_numpy_packs_them(file: Any, shape: tuple[int, ...], part: tuple[int, int]) -> None:
    filters = filters_of(*shape)
    groups = len(output_groups(shape[0]))
    found, told = read(file(filters), filters, *part, (0, groups))
    assert told == 0
    assert (found == pack_filters(filters[:, slice(*part)])).all()


def test_some_groups(file: Any) -> None:
    filters = filters_of(5 * LANES, LANES, 3, 3, 3)
    found, _ = read(file(filters), filters, 0, LANES, (1, 2))
    expected, size = pack_filters(filters), 2 * LANES * LANES * 27
    assert (found[size : 2 * size] == expected[size : 2 * size]).all()
    assert np.isnan([*found[:size], *found[2 * size :]]).all()


def test_beyond_the_end(file: Any) -> None:
    filters = filters_of(2 * LANES, LANES, 3, 3, 3)
    number = file(filters)
    os.truncate(number, BEFORE + filters.nbytes - 1)
    assert read(number, filters, 0, LANES, (0, 1))[1] == 1


def test_no_such_file() -> None:
    found, told = read(-1, filters_of(LANES, LANES, 3, 3, 3), 0, LANES, (0, 1))
    assert told == 1
    assert np.isnan(found).all()


INTERRUPTED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>

static int calls;

/* Every other one is interrupted by a signal, and the others read half of what is asked for. */
ssize_t pread(int file, void *to, size_t size, off_t offset) {
    ssize_t (*next)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread");
    if (calls++ % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    return next(file, to, (size + 1) / 2, offset);
}
"""
READING = """
import ctypes, sys, tempfile
import numpy as np
from znnpy_kernels.direct.filter_reading import read_filters, scratch_floats
from znnpy_kernels.direct.packed_filters import output_groups, pack_filters, packed_size

filters = np.arange(5 * 7 * 9, dtype=np.float32).reshape(5, 7, 3, 3)
with tempfile.TemporaryFile() as file:
    file.write(filters.tobytes())
    file.flush()
    place, failed = np.array([file.fileno(), 0, 4 * 7 * 9]), np.zeros(1, np.int64)
    target = np.zeros(packed_size(5, 7, 9), np.float32)
    read_filters.run(
        failed=failed, place=place, target=target, outputs=5, inputs=7, taps=9, first_group=0,
        last_group=1, scratch=np.empty(scratch_floats(9), np.float32), scratch_worker=scratch_floats(9),
    )
print(int(failed[0]), bool((target == pack_filters(filters[:, :, None])).all()))
"""


def test_calls_that_signals_interrupt_are_made_again(tmp_path: Path) -> None:
    source, script = tmp_path / "interrupted.c", tmp_path / "reading.py"
    source.write_text(INTERRUPTED)
    script.write_text(READING)
    assert run_with(built(source, tmp_path), script) == "0 True\n"
