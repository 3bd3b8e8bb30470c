"""What lies between the ranks: shared memory, TCP over loopback, or TCP through links of a given rate.

A link of some rate is a network namespace for each rank, a virtual cable from it to a bridge, and a token
bucket filter (tbf) at both ends, so that a rank sends and receives at most so much. That needs root and `ip`
and `tc` with tbf, veth and bridge in the kernel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

TCP = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "MPIR_CVAR_NOLOCAL": "1"}
BURST, LATENCY = "64kb", "400ms"
SUBNET = "10.147.83"


class NetError(Exception):
    """This system cannot make such a net; the text says why."""


@dataclass(frozen=True)
class Net:
    """How to start a command for each rank: what stands before it, its environment, rank 0's address."""

    name: str
    before: tuple[tuple[str, ...], ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    address: str = "127.0.0.1"
    interface: str = "lo"

    def mpiexec(self, ranks: int, command: Sequence[str]) -> list[str]:
        """The command line that starts so many ranks of a command."""
        words = [shutil.which("mpiexec") or "mpiexec"]
        for name, value in self.environment.items():
            words += ["-genv", name, value]
        if not self.before:
            return [*words, "-n", str(ranks), *command]
        for rank in range(ranks):
            words += [*([":"] if rank else []), "-n", "1", *self.before[rank], *command]
        return words


@contextmanager
def opened(name: str, ranks: int) -> Iterator[Net]:
    """`shared`, `tcp`, or a rate that tc knows, such as `1gbit`; NetError where that cannot be made."""
    if name == "shared":
        yield Net(name)
    elif name == "tcp":
        yield Net(name, environment=TCP)
    else:
        with _shaped(name, ranks) as net:
            yield net


@contextmanager
def _shaped(rate: str, ranks: int) -> Iterator[Net]:
    if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        raise NetError(f"links of {rate} need root, `ip` and `tc`")
    own = [f"znnpy-{os.getpid()}-{rank}" for rank in range(ranks)]
    switch = f"znnpy-{os.getpid()}-switch"
    try:
        _ip("netns", "add", switch)
        _in(switch, "ip", "link", "add", "switch", "type", "bridge")
        _in(switch, "ip", "link", "set", "switch", "up")
        for rank, space in enumerate(own):
            _cable(rate, rank, space, switch)
        before = tuple(("ip", "netns", "exec", space) for space in own)
        yield Net(rate, before, TCP, f"{SUBNET}.1", "cable")
    finally:
        for space in (*own, switch):
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)


def _cable(rate: str, rank: int, space: str, switch: str) -> None:
    """A rank's namespace and its cable to the bridge."""
    _ip("netns", "add", space)
    far = f"port{rank}"
    _ip(
        "link", "add", "cable", "netns", space, "type", "veth", "peer", "name", far, "netns", switch
    )
    _in(space, "ip", "address", "add", f"{SUBNET}.{rank + 1}/24", "dev", "cable")
    for device in ("lo", "cable"):
        _in(space, "ip", "link", "set", device, "up")
    _in(switch, "ip", "link", "set", far, "master", "switch", "up")
    for where, device in ((space, "cable"), (switch, far)):
        limits = "rate", rate, "burst", BURST, "latency", LATENCY
        _in(where, "tc", "qdisc", "add", "dev", device, "root", "tbf", *limits)


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _in(space: str, *words: str) -> None:
    _run(["ip", "netns", "exec", space, *words])


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetError(f"`{' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}")
