"""What is said of others that a launcher started."""

import subprocess
import sys

LAUNCHER = """
import os, signal, subprocess, sys
STOP = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
def start(code, **environment):
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ | environment)
stopped = [start(STOP), start(STOP, PMI_RANK="3")]
try:
    for process in stopped:
        os.waitpid(process.pid, os.WUNTRACED)
    print(f"rank 3 (pid {stopped[1].pid})", flush=True)
    start("from znnpy.distributed.rendezvous import stopped_here; print(stopped_here())").wait()
finally:
    for process in stopped:
        process.kill()
"""


def test_a_stopped_process_that_is_no_rank_is_not_named():
    done = subprocess.run([sys.executable, "-c", LAUNCHER], capture_output=True, text=True)
    expected, found = done.stdout.splitlines()
    assert found == expected, done.stderr
