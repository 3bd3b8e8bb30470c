"""`scripts/scaling.py` refuses what makes no sense before it measures for minutes."""

from __future__ import annotations

import sys

import pytest
from blocks import ROOT


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--recorded", "3by10"], "3by10: neither FILTERxWIDTH, as 3x10, nor a config's file"),
        (["--measured", "3x10", "gone.yaml"], "gone.yaml: neither"),
        (["--recorded", "3x10", "--workers", "16", "0"], "--workers: must be above 0"),
        (["--recorded", "3x10", "--updates", "0"], "--updates: must be above 0"),
        (["--measured", "3x10", "--rounds", "-1"], "--rounds: must be above 0"),
        (["--measured", "3x10", "--seconds", "nan"], "--seconds: must be above 0"),
        (["--recorded", "3x10", "--line", "inf"], "--line: must be above 0"),
        (["--measured", "3x10", "--workers", "100000"], "--measured takes real cores"),
        (
            ["--recorded", "3x10", "--memory-bandwidth", "0", "--domains", "0"],
            "--memory-bandwidth and --domains: must be above 0",
        ),
        (
            ["--recorded", "3x10", "--memory-bandwidth", "300", "--l3", "big"],
            "--l3: 'big' is not like 8GiB",
        ),
        (["--sums", "--least"], "--least is of --recorded"),
        (["--recorded", "3x10", "--domains", "8"], "which --memory-bandwidth counts"),
        (["--recorded", "3x10", "--json", "/gone/far.json"], "there is no folder /gone"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    import scaling

    def measured(_: object) -> None:
        raise AssertionError("it was measured")

    monkeypatch.setattr(scaling, "show_recorded", measured)
    monkeypatch.setattr(scaling, "show_measured", measured)
    monkeypatch.setattr(sys, "argv", ["scaling.py", *words])
    with pytest.raises(SystemExit) as ended:
        scaling.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
