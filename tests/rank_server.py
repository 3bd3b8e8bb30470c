"""Forks a process that has imported znnpy already for each rank that mpiexec starts (`rank.py`).

    python rank_server.py SOCKET

Ends with its standard input.
"""

from __future__ import annotations

import fcntl
import gc
import marshal
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

# What ranks of these tests import in the end, but for mpi4py.MPI, which joins them.
IMPORTS = (
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "mpi4py",
    "znnpy.cli.app",
    "znnpy.cli.tables",
    "znnpy.distributed.rendezvous",
    "znnpy.engine",
    "znnpy.train.worker_rank",
    "znnpy.train.session",
)
HIGH = 500  # above all numbers of files


def serve(place: str) -> list[str]:
    """Returns in the process of a rank, with its words."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(64)
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            link = listening.accept()[0]
            if os.fork() == 0:
                listening.close()
                return forked(link)
            link.close()
    sys.exit()


def forked(link: socket.socket) -> list[str]:
    """Returns in a child; stays here until it ends, or the rank that mpiexec knows does."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, files, *_ = socket.recv_fds(link, 8, HIGH // 2)
    with link.makefile("rb") as stream:
        told = marshal.loads(stream.read(int.from_bytes(head, "little")))
    if pid := os.fork():
        watch(link, pid, files)
    link.close()
    return become(files, *told)


def watch(link: socket.socket, pid: int, files: list[int]) -> NoReturn:
    for file in files:
        os.close(file)
    with suppress(OSError):  # whoever was told to end may have done so
        link.sendall(pid.to_bytes(8, "little"))
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, link], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(OSError):
        link.sendall(code.to_bytes(8, "little", signed=True))
    os._exit(0)


def become(
    files: list[int], words: list[str], environment: dict[str, str], folder: str,
    cores: list[int], numbers: list[int],
) -> list[str]:  # fmt: skip
    """Take over what the rank has of the process that started it."""
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, HIGH) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(moved, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.sched_setaffinity(0, cores)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return list(words)


if __name__ == "__main__":
    for name in IMPORTS:
        import_module(name)
    gc.freeze()
    script, *arguments = serve(sys.argv[1])
    sys.argv = ["-c", *arguments]
    exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})
