"""A rank as mpiexec sees it: it has a process forked that has imported znnpy already, and ends as that does."""

import marshal
import os
import signal
import socket
import sys


def main(place: str, *words: str) -> None:
    """Hand over all that a process has from the one that starts it, then wait."""
    files = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    files = [file for file in files if os.path.exists(f"/proc/self/fd/{file}")]  # noqa: PTH110
    link = socket.socket(socket.AF_UNIX)
    link.connect(place)
    cores = list(os.sched_getaffinity(0))
    told = marshal.dumps((words, dict(os.environ), os.getcwd(), cores, files))  # noqa: PTH109
    socket.send_fds(link, [len(told).to_bytes(8, "little")], files)
    link.sendall(told)
    pid = int.from_bytes(link.recv(8), "little")
    with open("/proc/self/comm", "w") as name:  # noqa: PTH123
        name.write(f"rank {pid}")  # `ranked.ranks_of` reads it
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    ended = link.recv(8)
    code = int.from_bytes(ended, "little", signed=True) if ended else 1
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main(*sys.argv[1:])
