"""Connects to a dask scheduler, the user's own or one with new processes on this machine, over TLS where it can.

Workers run what they are sent. So the processes of this machine talk over TLS with a key and
certificate that are made anew each time, kept in memory, and asked for on both sides: nobody else,
and no other user of the machine, can send them anything.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from typing import Any

from znnpy.errors import ZnnpyError

TRACKER = "ignore:resource_tracker"
"""A warnings filter: Python's resource tracker warns of what killed processes leave, though it frees that."""
# Protocols by which dask asks for certificates.
ENCRYPTED = ("tls", "wss")
MISSING = "--dask needs the packages distributed and cryptography: pip install 'znnpy[dask]'"
# HTTP servers listen beside, on 127.0.0.1, and cannot be left out: they serve nothing.
# A worker that replaces one may load for longer on a busy machine than the 15 s after which dask would close
# it for good: with the last one a job would wait without end.
CONFIG: dict[str, list[str] | str] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.deploy.lost-worker-timeout": "1 hour",
}


def risk(where: str) -> str:
    """Return a sentence on what others can do to a cluster at an address; "" if nothing."""
    kind = where.partition(":")[0]
    if kind in (*ENCRYPTED, "local"):
        return ""
    return (
        f"--dask {where} is not encrypted: whoever can reach this scheduler or its workers can run "
        "code as you; tls:// with the certificates of your dask configuration lets in nobody else"
    )


@contextmanager
def cluster(where: str) -> Iterator[Any]:
    """Yield a client of the scheduler at an address, or of `local:N` new processes here.

    Two threads in each, so that one block is read and written while another is computed.
    """
    kind, _, count = where.partition(":")
    if kind != "local":
        with _connected(where) as client:
            yield client
        return
    if not count.isdecimal() or int(count) < 1:
        raise ZnnpyError(f"--dask {where}: local needs a number of processes, such as local:4")
    with _local(int(count)) as client:
        yield client


@contextmanager
def _connected(where: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError as error:
        raise ZnnpyError(MISSING) from error
    try:
        client = Client(where, timeout="30s")
    except (OSError, ValueError) as error:
        raise ZnnpyError(f"--dask {where}: no scheduler answers there ({error})") from error
    except (TypeError, RuntimeError) as error:  # no certificate is configured, or none is taken
        raise ZnnpyError(
            f"--dask {where}: {error}; see distributed.comm.tls of your dask configuration"
        ) from error
    with client:
        yield client


@contextmanager
def _local(count: int) -> Iterator[Any]:
    try:
        import dask
        from distributed import Client, LocalCluster
        from distributed.security import Security

        # A key and certificate of this cluster alone, in memory: nobody else can talk to it.
        security = Security.temporary()
    except ImportError as error:
        raise ZnnpyError(MISSING) from error
    with ExitStack() as stack:
        # Workers' scratch, which would otherwise lie in the working directory.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="znnpy-dask-"))
        stack.enter_context(dask.config.set(CONFIG))
        local = LocalCluster(
            loop=stack.enter_context(_uninterrupted()),
            n_workers=count,
            threads_per_worker=2,
            host="127.0.0.1",
            protocol="tls://",
            security=security,
            dashboard_address=None,
            # Any free port: a second cluster would be warned that the first one has the usual one.
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            local_directory=folder,
            # dask would end workers that take more than a share of the machine; memory is planned
            # here.
            memory_limit=0,
            silence_logs=logging.CRITICAL,  # what fails in a worker is raised here
        )
        stack.enter_context(local)
        yield stack.enter_context(Client(local))


@contextmanager
def _uninterrupted() -> Iterator[Any]:
    """Yield the loop of a thread that starts processes which Ctrl-C, sent to a whole terminal, does not reach.

    This process ends them; those that are still loading would print a traceback.
    """
    from distributed.utils import LoopRunner

    # Before signals are blocked: started later, it would let them through again.
    _begin_tracker()
    runner = LoopRunner()
    # Threads and processes inherit the mask; the main thread's own is put back at once.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        runner.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield runner.loop
    finally:
        runner.stop()


def _begin_tracker() -> None:
    """Start Python's resource tracker early: later, it would let signals through to the thread that starts it."""
    name = "PYTHONWARNINGS"
    before = os.environ.get(name)
    os.environ[name] = TRACKER
    try:
        resource_tracker.ensure_running()
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
