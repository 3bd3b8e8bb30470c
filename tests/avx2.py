"""Programs that compile for a CPU with AVX2 and no more; all name it alike and share what is compiled."""

from __future__ import annotations

import os
import subprocess
import sys

FORCED = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+sse4.2,+avx,+avx2,+fma,+bmi,+bmi2,+popcnt,-avx512f",
}


def on_avx2(*words: object) -> list[str]:
    """Words that Python prints when it is called so."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, **FORCED},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
