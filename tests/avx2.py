"""Programs that compile for a CPU with AVX2 and no more; what is compiled for it is shared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LANES = Path(__file__).parents[1] / "scripts" / "lanes"


def on_avx2(*words: object) -> list[str]:
    """Words that Python prints when it is called so."""
    here = [sys.executable, str(LANES), "8"]
    if subprocess.run([*here, "true"], check=False).returncode:
        pytest.skip("this CPU has no AVX2")
    done = subprocess.run(
        [*here, sys.executable, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
