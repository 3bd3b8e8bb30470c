"""FFTW plans: remembered on the machine, and then the same bits in every process."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from znnpy_kernels.machine import cache

from znnpy.errors import PlanError
from znnpy.plan import fftw

SPECTRUM = """
import sys, warnings, numpy as np
from pathlib import Path
if sys.argv[2:]:
    import pyfftw
warnings.simplefilter("always")
from znnpy import locks
from znnpy.plan import fftw
locks.PATIENCE = 600.0  # other tests plan, too
fftw.wisdom_path = lambda: Path(sys.argv[1])
from znnpy_kernels.fft.images import image_spectra
from znnpy_kernels.machine.guards import unguarded
size = (12, 18, 21)
plan = fftw.plan_forward(size)
fftw.plan_inverse(size)
x = np.random.default_rng(0).standard_normal(size, np.float32)
X = np.empty(plan.floats + 16, np.float32)
X = X[-X.ctypes.data // 4 % 16 :][: plan.floats]
image_spectra.run(source=x, source_z=18 * 21, source_y=21, source_x=1, source_channel=0,
                  target=X, target_channel=0, channels=1,
                  plan=unguarded(plan.address))
sys.stdout.write(X.tobytes().hex())
"""


def spectrum(wisdom: Path, *words: str) -> tuple[str, str]:
    """A spectrum computed by a new process with this wisdom, and what it says on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", SPECTRUM, str(wisdom), *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


@pytest.mark.slow
def test_wisdom_makes_processes_agree_and_is_not_measured_again(tmp_path: Path) -> None:
    assert fftw.wisdom_path().parent == cache.root()
    wisdom = tmp_path / "fftw.wisdom"
    first, _ = spectrum(wisdom)
    kept = wisdom.read_bytes()
    stamp = wisdom.stat().st_mtime_ns
    second, _ = spectrum(wisdom)
    assert first == second
    second, said = spectrum(wisdom, "where pyfftw was imported")
    assert not said
    assert first == second
    assert wisdom.read_bytes() == kept
    assert wisdom.stat().st_mtime_ns == stamp
    wisdom.write_bytes(kept[: len(kept) // 2])
    third, said = spectrum(wisdom)
    assert "not FFTW wisdom" in said
    assert len(third) == len(first)
    assert wisdom.read_bytes().startswith(b"(fftw")
    assert wisdom.read_bytes().rstrip().endswith(b")")
    assert list(tmp_path.iterdir()) == [wisdom]


def test_plans_are_made_once_by_any_thread() -> None:
    found: list[fftw.FftPlan] = []
    threads = [
        threading.Thread(target=lambda: found.append(fftw.plan_forward((6, 5, 9))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len({plan.address for plan in found}) == 1


def test_image_larger_than_its_grid_is_refused() -> None:
    with pytest.raises(PlanError, match=r"\(8, 8, 8\).*cannot hold an image of \(8, 9, 8\)"):
        fftw.plan_forward((8, 8, 8), (8, 9, 8))
    with pytest.raises(PlanError):
        fftw.plan_inverse((8, 8, 8), (0, 8, 8))


@given(st.integers(1, 3000))
def test_good_size_holds_n_and_has_small_factors(n: int) -> None:
    size = fftw.good_size(n)
    assert n <= size <= max(1.25 * n, n + 4)
    assert fftw.good_size(size) == size
    rest = size
    for factor in (2, 3, 5, 7, 11, 13):
        while rest % factor == 0:
            rest //= factor
    assert rest == 1


def test_rows_and_spectra_stay_aligned() -> None:
    for x in range(1, 40):
        row = fftw.spectrum_row((3, 5, x))
        assert row % 4 == 0
        assert 2 * (x // 2 + 1) <= row < 2 * (x // 2 + 1) + 4
        assert fftw.spectrum_floats((3, 5, x)) % 16 == 0
