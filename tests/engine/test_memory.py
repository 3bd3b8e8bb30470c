"""The planned peak against what the process really takes."""

import subprocess
import sys
import textwrap

import pytest

SCRIPT = r"""
    import re
    from pathlib import Path
    import numpy as np
    import znnpy

    def memory(field):
        status = Path("/proc/self/status").read_text()
        return int(re.search(field + r":\s+(\d+) kB", status)[1]) * 1024

    def run(width, output):
        layers = [{{"conv": {{"images": width, "size": 3, "function": "relu"}}}}, {{"max_filter": 2}},
                  {{"conv": {{"images": width, "size": 3, "function": "relu"}}}},
                  {{"conv": {{"images": 3, "size": 3}}}}]
        with znnpy.Model({{"layers": layers}}, output, threads=2, conv="{conv}") as model:
            x = np.zeros((1, 1, *model.input_shape), np.float32)
            target = np.zeros((1, 3, *output), np.float32)
            for _ in range(3):
                model.step(x, target)
            model.drain()
            return model.memory, x.nbytes + 4 * target.nbytes

    run({width}, (2, 2, 2))  # compiles, imports, and gets all that does not grow with the patch
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak that compiling reached
    before = memory("VmRSS")
    planned, arrays = run({width}, {output})
    print(planned, arrays, memory("VmHWM") - before)
"""


@pytest.mark.parametrize(
    ("conv", "width", "output"), [("direct", 32, (56, 56, 56)), ("fft", 8, (44, 44, 44))]
)
def test_the_plan_is_the_growth_of_the_process(conv, width, output):
    script = textwrap.dedent(SCRIPT.format(conv=conv, width=width, output=output))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    planned, arrays, grown = map(int, done.stdout.split())
    assert planned > 100e6
    assert abs(grown - planned - arrays) < 0.05 * planned
