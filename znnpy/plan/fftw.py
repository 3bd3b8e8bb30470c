"""FFTW: plans whole-image FFTs, chooses grid sizes, and keeps wisdom, so that later runs make the same plans.

FFTW comes with pyfftw, which nothing else needs: this module alone uses it, loads it once an FFT is planned, and
reports where it is `missing`. Its planner is reached by ctypes through pyfftw's own extension module, so wheels,
conda and distributions all work. Compiled kernels execute the plans by address (`znnpy_kernels.fft.images`).
FFTW chooses by timing, and another plan rounds otherwise: measurements are therefore stored as wisdom at once, and
the next process makes the same plan. Wisdom that a run or a plan file keeps takes precedence (`pin`), so that a lost
cache changes nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.fft import images as words
from znnpy_kernels.machine import cache as kernel_cache
from znnpy_kernels.machine.private_files import own_file

from znnpy.atomic_files import explained, replacing
from znnpy.errors import PlanError
from znnpy.locks import alone
from znnpy.network.types import Triple

# Real transforms go one way each: r2c is forward, c2r backward.
FORWARD, BACKWARD = -1, 1
# FFTW's own flags (fftw3.h): FFTW_FORWARD and FFTW_BACKWARD are the signs of the exponent.
# WISDOM_ONLY makes the planner fail rather than measure.
MEASURE, PATIENT, WISDOM_ONLY = 0, 1 << 5, 1 << 21
# Spectra are counted in lines, so that buffers side by side never share one.
LINE = 16  # floats in a cache line
# The sizes without a prime factor above 7 that pay (no larger one is faster), with FFTW 3.3 and layers of 10 to 40
# channels.
# FFTW is slow for large prime factors. A list rather than a rule: sizes such as 27 or 45 are
# smooth, but a larger one is as fast.
GOOD_SIZES: tuple[int, ...] = (
    *range(1, 17), 18, 20, 21, 24, 25, 28, 30, 32, 36, 40, 42, 48, 50, 54, 56, 60, 64, 72, 80, 90,
    96, 100, 108, 112, 120, 128,
)  # fmt: skip
# Sizes that FFTW computes by a single codelet, so that there is little to choose.
ONE_CODELET = (*range(1, 17), 20, 25, 32, 64, 128)


@dataclass(frozen=True)
class FftPlan:
    """One direction of a real 3-D FFT, in place, for `image` voxels at the origin of a `grid`.

    `address`: the `plan` word of `image_spectra` or `spectra_images`. A spectrum takes `floats`
    float32, an odd multiple of 16: [z][y][row] with `row` floats a row, the first 2 * (x // 2 + 1) of which
    are complex64; buffers are aligned to 64 bytes and belong to the caller. Plans live as long as
    the process and may be executed by any number of threads at once.
    """

    address: int
    grid: Triple
    image: Triple
    row: int
    floats: int


class _Dimension(ctypes.Structure):
    _fields_ = (("n", ctypes.c_int), ("source", ctypes.c_int), ("target", ctypes.c_int))


# FFTW's planner and its wisdom are global to the process and not thread-safe; executing plans is.
_lock = threading.Lock()
# Never emptied: argument blocks of compiled kernels hold the plans' addresses.
_plans: dict[tuple[int, Triple, Triple], FftPlan] = {}
# Keeps the memory behind `FftPlan.address` alive.
_blocks: list[NDArray[np.int64]] = []
_pinned: bytes | None = None  # takes precedence over the machine's wisdom
_latest: bytes | None = None  # the machine's wisdom when the last plan was made
# The text of wisdom: a head with the library's version and its solvers' checksum, and entries. FFTW's parser reads
# only texts that match.
# Names and numbers are bounded, since a plan file may come from anybody and FFTW's parser is C.
_ENTRY = r"\s*\(\w{1,63} \d{1,9}(?: #x[0-9a-f]{1,8}){7}\)"
_WISDOM = re.compile(rf"\(fftw-[\w.]+ fftwf_wisdom(?: #x[0-9a-f]{{1,8}}){{4}}(?:{_ENTRY})*\s*\)\s*")


@cache
def missing() -> str:
    """Return why no FFT can be planned here; empty if pyfftw is installed. Loads nothing."""
    return (
        "" if _extension() else 'FFTW is missing, which comes with pyfftw: pip install "znnpy[fft]"'
    )


def version() -> str:
    """Return the version of pyfftw; empty if it is missing or does not say."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("pyfftw") if _extension() else ""
    return ""


def pin(wisdom: str) -> None:
    """Make later plans by this wisdom where it has them; raise PlanError if it is none.

    Wisdom of another version of FFTW is skipped with a warning. Earlier plans stay.
    """
    global _pinned
    check(wisdom)
    with _lock:
        _pinned = wisdom.encode() if _learn(wisdom.encode()) else None
    if _pinned is None:
        warnings.warn(
            "FFTW wisdom that was kept is of another version; FFTs are planned anew and may round otherwise",
            RuntimeWarning,
            stacklevel=2,
        )


def check(wisdom: Any) -> None:
    """Raise PlanError if a value is no wisdom: FFTW is given nothing else."""
    if not isinstance(wisdom, str) or not _WISDOM.fullmatch(wisdom):
        raise PlanError("its fftw is no FFTW wisdom in single precision")


def known() -> str:
    """Return wisdom as text that has every plan of this process."""
    with _lock:
        library = _fftw()
        # Forgotten first, so that what another call has left in the library does not get into the
        # file.
        library.fftwf_forget_wisdom()
        # Pinned wisdom last, so that it takes precedence where both have a plan.
        for text in filter(None, (_latest, _pinned)):
            library.fftwf_import_wisdom_from_string(text)
        head, *entries, end = _exported().decode().splitlines(keepends=True)
        # Sorted, for files that can be compared: FFTW reads any order.
        return "".join((head, *sorted(entries), end))


def plan_forward(grid: Triple, image: Triple | None = None) -> FftPlan:
    """Return the plan that transforms images of `image` voxels (z, y, x; default: the grid) to spectra of `grid`.

    Made, or found in wisdom, at the first call; thread-safe. PlanError if the image is larger than the grid.
    """
    return _plan(FORWARD, grid, image or grid)


def plan_inverse(grid: Triple, image: Triple | None = None) -> FftPlan:
    """Return the plan that transforms spectra of `grid` back to their first `image` voxels (z, y, x)."""
    return _plan(BACKWARD, grid, image or grid)


def good_size(n: int) -> int:
    """Return the grid size that is fastest for `n` voxels of an axis; the same on every machine.

    Beyond 128: the next multiple of 16 without a prime factor above 7.
    """
    for good in GOOD_SIZES:
        if good >= n:
            return good
    size = -(-n // 16) * 16
    # FFTW has codelets for the factors 2, 3, 5 and 7.
    while _without_small_factors(size) > 1:
        size += 16
    return size


def _without_small_factors(size: int) -> int:
    for factor in (2, 3, 5, 7):
        while size % factor == 0:
            size //= factor
    return size


def spectrum_row(grid: Triple) -> int:
    """Return the floats in a row of a spectrum: an even number of complex ones, to align rows to 16 bytes."""
    # grid / 2 + 1 complex numbers, rounded up to an even count, of two floats each. In place the
    # real row needs grid[2] floats, which are never more.
    return (grid[2] // 2 + 2) // 2 * 4


def spectrum_floats(grid: Triple) -> int:
    """Return the floats of a spectrum with its padding: an odd multiple of 16.

    Odd, so that the same frequency of neighbouring spectra does not fall on one set of the caches.
    """
    lines = -(-grid[0] * grid[1] * spectrum_row(grid) // LINE)
    return (lines | 1) * LINE


def _plan(direction: int, grid: Triple, image: Triple) -> FftPlan:
    if any(not 1 <= size <= room for size, room in zip(image, grid, strict=True)):
        raise PlanError(
            f"FFT grid {grid} (z, y, x) cannot hold an image of {image}; it must be as large"
        )
    with _lock:
        key = (direction, grid, image)
        if key not in _plans:
            _plans[key] = _make(direction, grid, image)
        return _plans[key]


def _make(direction: int, grid: Triple, image: Triple) -> FftPlan:
    row, count = spectrum_row(grid), spectrum_floats(grid)
    # A plan holds for buffers of the alignment that it was made with; kernels' buffers begin on a
    # line, so this one must, too.
    space = np.empty(count + LINE, np.float32)
    first = -space.ctypes.data // 4 % LINE
    buffer = space[first : first + count]
    with _planner() as planner:
        block = np.zeros(words.PLAN_WORDS, np.int64)
        # One plan for each axis: kernels leave out the rows and planes that hold nothing, which a
        # single 3-D plan cannot.
        block[words.PLAN_ROWS] = planner.rows(direction, grid, image[1], buffer)
        block[words.PLAN_PLANE] = planner.columns(direction, grid[1], row // 2, buffer)
        block[words.PLAN_DEPTH] = planner.columns(direction, grid[0], grid[1] * row // 2, buffer)
    block[words.PLAN_ROWS_EXECUTE] = _address(
        "fftwf_execute_dft_r2c" if direction == FORWARD else "fftwf_execute_dft_c2r"
    )
    block[words.PLAN_COMPLEX_EXECUTE] = _address("fftwf_execute_dft")
    block[words.PLAN_GRID_Z : words.PLAN_FLOATS + 1] = (*grid, *image, row, count)
    # Before the address is handed out.
    _blocks.append(block)
    return FftPlan(block.ctypes.data, grid, image, row, count)


class _Planner:
    """Calls FFTW's planner, under `_lock`: every call tries wisdom first and measures only unknown plans."""

    def __init__(self) -> None:
        self.measured = False  # or the wisdom on disk has to be written for another reason

    def _by_pinned(self, attempt: Callable[[], int | None]) -> int | None:
        """Return the plan by pinned wisdom, if it has one; the machine's wisdom is kept apart from it."""
        if _pinned is None:
            return None
        # FFTW has one store of wisdom: it is exchanged for the pinned one and put back, so that
        # pinned plans never reach the machine's file.
        own = _exported()
        plan = attempt() if _learn(_pinned) else None
        _learn(own)
        return plan

    def rows(self, direction: int, grid: Triple, rows: int, buffer: NDArray[np.float32]) -> int:
        """Plan the real rows of one z plane to complex ones, or back, in place; return the plan's address."""
        real, halved = spectrum_row(grid), spectrum_row(grid) // 2
        # Distances between rows, each counted in its own type: floats on the real side, complex
        # numbers on the other. Both are the same bytes, as the transform is in place.
        steps = (real, halved) if direction == FORWARD else (halved, real)
        kind = "r2c" if direction == FORWARD else "c2r"
        line, many = _dimensions((grid[2], 1, 1)), _dimensions((rows, *steps))
        return self._plan(f"fftwf_plan_guru_dft_{kind}", line, many, buffer)

    def columns(self, direction: int, count: int, step: int, buffer: NDArray[np.float32]) -> int:
        """Plan `step` neighbouring complex lines of `count` values, `step` apart, in place; return its address."""
        line, many = _dimensions((count, step, step)), _dimensions((step, 1, 1))
        return self._plan("fftwf_plan_guru_dft", line, many, buffer, direction)

    def _plan(
        self, name: str, line: Any, many: Any, buffer: NDArray[np.float32], *sign: int
    ) -> int:
        place = ctypes.c_void_p(buffer.ctypes.data)
        make = getattr(_fftw(), name)

        def attempt(flags: int) -> int | None:
            # Planning by timing runs transforms in place: of zeros, so that no denormal of
            # uninitialised memory slows what is timed.
            buffer[:] = 0
            found: int | None = make(1, line, 1, many, place, place, *sign, flags)
            return found

        effort = _effort(line[0].n)
        # Pinned wisdom, then the machine's, then a measurement: a run must go on with the bits that
        # it was begun with.
        plan = self._by_pinned(lambda: attempt(effort | WISDOM_ONLY))
        if plan is None:
            plan = attempt(effort | WISDOM_ONLY)
        if plan is None:
            self.measured = True
            plan = attempt(effort)
        if plan is None:
            raise PlanError(f"FFTW makes no plan for {line[0].n} values at {line[0].source}")
        return plan


def _effort(count: int) -> int:
    """Return FFTW's planning effort for lines of `count`: patient where that helps and takes under a second.

    24^3 takes 45 us with FFTW_MEASURE and 31 with FFTW_PATIENT, 30^3 89 and 60, but 32^3 48 with both.
    """
    return PATIENT if count < 64 and count not in ONE_CODELET else MEASURE


@contextlib.contextmanager
def _planner() -> Iterator[_Planner]:
    """Yield a planner that knows this machine's wisdom, and store what it adds.

    One process at a time: the second to measure finds the first one's choice, not another.
    """
    folder = kernel_cache.made()
    # Held while wisdom is read, plans are measured and wisdom is written: otherwise two processes
    # would measure at once, disturb each other and keep different plans.
    read_only = kernel_cache.read_only()
    with contextlib.nullcontext() if read_only else alone(folder / "fftw.lock", "plans FFTs"):
        path = wisdom_path()
        planner = _Planner()
        # A damaged file is written again even if nothing new is planned.
        planner.measured = not _import_wisdom(path)
        yield planner
        global _latest
        _latest = _exported()
        if planner.measured and read_only:
            raise kernel_cache.lacking(["plan of FFTW"])
        if planner.measured:
            _export_wisdom(path)


def wisdom_path() -> Path:
    """Return the file of this machine's wisdom; one for each kind of CPU, as a home directory may be shared."""
    return kernel_cache.root() / f"fftw-{llvmlite.binding.get_host_cpu_name()}.wisdom"


def _import_wisdom(path: Path) -> bool:
    """Replace FFTW's wisdom by that of the file; return False, with a warning, if it is damaged."""
    _fftw().fftwf_forget_wisdom()
    if not own_file(path) or _fftw().fftwf_import_wisdom_from_filename(os.fsencode(path)):
        return True
    warnings.warn(
        f"{path} is not FFTW wisdom of this version; plans are measured anew and it is replaced",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def _learn(wisdom: bytes) -> bool:
    """Replace FFTW's wisdom by this; return False if it is of another version."""
    _fftw().fftwf_forget_wisdom()
    return bool(_fftw().fftwf_import_wisdom_from_string(wisdom))


def _exported() -> bytes:
    """Return FFTW's current wisdom."""
    address = _fftw().fftwf_export_wisdom_to_string()
    try:
        return ctypes.string_at(address)
    finally:
        _free(address)


def _export_wisdom(path: Path) -> None:
    with explained(path, PlanError), replacing(path) as new:
        new.write_bytes(_exported())
        new.chmod(0o600)  # before it has content: files that others can write are not read


@cache
def _fftw() -> Any:
    """Return FFTW through pyfftw's extension module, which exports its symbols."""
    path = _extension()
    if path is None:
        raise PlanError(missing())
    try:
        library = ctypes.CDLL(path)
        # Wisdom carries a checksum of the registered solvers. Importing pyfftw registers those with threads, so they
        # are registered here too.
        # Must come before any wisdom is imported, which is compared with this checksum.
        library.fftwf_init_threads()
        for kind in ("dft_r2c", "dft_c2r", "dft"):
            # ctypes would cut addresses to 32 bits.
            getattr(library, f"fftwf_plan_guru_{kind}").restype = ctypes.c_void_p
        library.fftwf_export_wisdom_to_string.restype = ctypes.c_void_p
    except (OSError, AttributeError) as error:
        raise PlanError(
            f"pyfftw brings no FFTW in single precision that can be loaded ({error}); install its wheel: "
            "pip install --force-reinstall pyfftw"
        ) from error
    return library


def _free(address: int) -> None:
    """Free memory that FFTW took from the C library."""
    ctypes.CDLL(None).free(ctypes.c_void_p(address))


def _extension() -> str | None:
    """Return the path of pyfftw's extension module without importing pyfftw, which imports scipy and dask."""
    package = PathFinder.find_spec("pyfftw")
    places = package.submodule_search_locations if package else None
    module = PathFinder.find_spec("pyfftw.pyfftw", places) if places else None
    return module.origin if module else None


def _address(function: str) -> int:
    address: int | None = ctypes.cast(getattr(_fftw(), function), ctypes.c_void_p).value
    return address or 0


def _dimensions(*sizes: tuple[int, int, int]) -> Any:
    return (_Dimension * len(sizes))(*[_Dimension(*size) for size in sizes])
