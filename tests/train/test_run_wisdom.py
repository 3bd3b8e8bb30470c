"""FFTW's wisdom of a run: written where a layer needs it, used again, a line when it is damaged."""

from __future__ import annotations

import pytest

from znnpy.plan import LayerPlan, Plan, fftw
from znnpy.train.run_directory import FFTW, keep_wisdom, pin_wisdom

BY_FFT = Plan({"c": LayerPlan("direct", "direct", "fft")})


@pytest.fixture(autouse=True)
def nothing_pinned(monkeypatch):
    monkeypatch.setattr(fftw, "_pinned", None)


def test_wisdom_is_kept_once_and_pinned(tmp_path):
    said = []
    pin_wisdom(tmp_path, said.append)
    keep_wisdom(tmp_path, Plan({"c": LayerPlan("direct", "direct", "direct")}))
    assert not (tmp_path / FFTW).exists()
    fftw.plan_forward((4, 6, 10))
    keep_wisdom(tmp_path, BY_FFT)
    text = (tmp_path / FFTW).read_text()
    fftw.plan_forward((4, 6, 30))
    keep_wisdom(tmp_path, BY_FFT)
    assert (tmp_path / FFTW).read_text() == text
    pin_wisdom(tmp_path, said.append)
    assert fftw._pinned == text.encode()
    assert not said


@pytest.mark.parametrize("content", [b"", b"7", b"\xff", b"(fftw-3.3.5 fftwf_wisdom"])
def test_damaged_wisdom_is_one_line(tmp_path, content):
    said = []
    (tmp_path / FFTW).write_bytes(content)
    pin_wisdom(tmp_path, said.append)
    (line,) = said
    assert "fftw.wisdom cannot be used" in line
    assert fftw._pinned is None
