"""Processes of this machine let in nobody else; other clusters are named for what they are."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest
from children import forked

from znnpy.errors import ZnnpyError
from znnpy.infer.dask_cluster import TRACKER, cluster, risk
from znnpy.infer.memory import local_processes

OTHER_USER = 65534
REQUEST = b"GET /api/v1 HTTP/1.1\r\nHost: here\r\n\r\n"


def test_words_that_are_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_processes("local:3") == 3
    assert local_processes("tcp://here:1") == local_processes(None) == 1
    with pytest.raises(ZnnpyError, match="such as local:4"), cluster("local:some"):
        pass
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ZnnpyError, match=r"znnpy\[dask\]"), cluster("local:2"):
        pass


@pytest.mark.parametrize(
    ("where", "open_to_others"),
    [
        ("tcp://here:8786", True),
        ("here:8786", True),
        ("tls://here:8786", False),
        ("local:2", False),
    ],
)
def test_what_others_could_do_is_said(where: str, open_to_others: bool) -> None:
    words = risk(where)
    assert ("run code as you" in words) == open_to_others
    assert "\n" not in words


def listening() -> set[tuple[str, int]]:
    """Where this process and all that it started wait for connections."""
    me = psutil.Process()
    found = set()
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end just now
            for entry in process.net_connections("inet"):
                if entry.status == psutil.CONN_LISTEN:
                    found.add((entry.laddr.ip, entry.laddr.port))
    return found


def started(word: str) -> list[psutil.Process]:
    """What this process has started, directly or not, with this word in its command line."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(word in it for it in process.cmdline()):
                found.append(process)
    return found


def contexts() -> list[ssl.SSLContext | None]:
    """In the clear; encrypted without a certificate; with one that somebody else made."""
    from distributed.security import Security

    bare = ssl.create_default_context()
    bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
    foreign = Security.temporary().get_connection_args("client")["ssl_context"]
    foreign.verify_mode = ssl.CERT_NONE
    return [None, bare, foreign]


def answer(port: int, context: ssl.SSLContext | None) -> bytes:
    """What is said to somebody who connects, and to a request after it; nothing if refused."""
    said = b""
    with (
        contextlib.suppress(OSError),
        contextlib.ExitStack() as stack,
    ):
        link: Any = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
        if context:
            link = stack.enter_context(context.wrap_socket(link))
        link.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            said += link.recv(1000)
        link.sendall(REQUEST)
        said += link.recv(1000)
    return said


def let_in(addresses: set[tuple[str, int]], tries: list[ssl.SSLContext | None]) -> list[Any]:
    """Ports that answered anything but that there is nothing; all are tried at once, for most never answer."""
    pairs = list(itertools.product([port for _, port in addresses], tries))
    with ThreadPoolExecutor(len(pairs)) as pool:
        said = list(pool.map(lambda pair: answer(*pair), pairs))
    found = zip((port for port, _ in pairs), said, strict=True)
    return [(port, text) for port, text in found if text and not text.startswith(b"HTTP/1.1 404")]


@pytest.fixture(scope="module")
def tries() -> list[ssl.SSLContext | None]:
    pytest.importorskip("distributed")
    return contexts()


@pytest.fixture(scope="module")
def running(tries: Any) -> Iterator[tuple[Any, set[tuple[str, int]]]]:
    """A cluster's client, and where its processes listen; nobody does when it has ended."""
    # Tests that were run here before may have begun one, as it comes.
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]
    before = listening()
    with cluster("local:2") as client:
        yield client, listening() - before
    assert not listening() - before


@pytest.mark.slow
def test_nobody_else_is_let_in(running: Any, tries: Any) -> None:
    client, addresses = running
    assert {ip for ip, _ in addresses} == {"127.0.0.1"}
    assert len(addresses) >= 2 * 2 + 1  # of workers, of those who watch them, of the scheduler
    assert let_in(addresses, tries) == []
    assert all(address.startswith("tls://") for address in client.nthreads())
    assert client.submit(len, "known").result() == 5
    kept = list(Path(tempfile.gettempdir()).glob("znnpy-dask-*"))
    assert kept
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)


@pytest.mark.slow
def test_ctrl_c_does_not_reach_its_processes(running: Any) -> None:
    """A terminal sends it to all of them, and what still loads would say where it was; the tracker says nothing."""

    def blocked(pid: int) -> bool:
        (line,) = re.findall(r"SigBlk:\s+([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text())
        return bool(int(line, 16) & 1 << signal.SIGINT - 1)

    workers, trackers = started("spawn_main"), started("resource_tracker")
    assert len(workers) == 2
    assert all(blocked(it.pid) for it in workers)
    assert not blocked(os.getpid())
    assert "PYTHONWARNINGS" not in os.environ or os.environ["PYTHONWARNINGS"] != TRACKER
    assert [it.environ().get("PYTHONWARNINGS") for it in trackers] == [TRACKER]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_is_not_let_in(running: Any, tries: Any) -> None:
    _, addresses = running

    def attack(pipe: int) -> None:
        os.setuid(OTHER_USER)
        os.write(pipe, repr(let_in(addresses, tries)).encode())

    assert forked(attack) == (0, b"[]")


@pytest.mark.slow
def test_a_cluster_of_the_users_own_with_certificates(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    import dask
    from distributed.security import Security

    security = Security.temporary()
    for name, text in {"key": security.tls_client_key, "cert": security.tls_client_cert}.items():
        (tmp_path / name).write_text(text)
    key, cert = str(tmp_path / "key"), str(tmp_path / "cert")
    words = ["--protocol", "tls", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    words += ["--tls-key", key, "--tls-cert", cert, "--tls-ca-file", cert]
    words += ["--scheduler-file", str(tmp_path / "where.json")]
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        told = tmp_path / "where.json"
        while not (told.exists() and told.read_text().endswith("\n}")) and scheduler.poll() is None:
            time.sleep(0.1)
        where = json.loads(told.read_text())["address"]
        with pytest.raises(ZnnpyError, match=r"distributed\.comm\.tls"), cluster(where):
            pass
        settings = {"ca-file": cert, "client.key": key, "client.cert": cert}
        with (
            dask.config.set({f"distributed.comm.tls.{k}": v for k, v in settings.items()}),
            cluster(where) as client,
        ):
            assert client.scheduler_info()["address"] == where
    finally:
        scheduler.kill()
        scheduler.wait()
