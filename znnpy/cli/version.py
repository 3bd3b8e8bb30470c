"""The command `znnpy version`."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated

import typer

import znnpy

NAME = re.compile(r"[\w.-]+")
OTHERS = re.compile(r"extra == .(test|peers|docs|dev)\b")  # what developers use
CPUS = Path("/proc/cpuinfo")


def show_version(
    everything: Annotated[
        bool,
        typer.Option("--all", help="Show what a bug report needs: versions, CPU, memory, cache."),
    ] = False,
) -> None:
    """Show the version; with --all, the versions of all libraries, and what znnpy knows of this machine.

    No names of people, hosts or files are shown; the home directory is ~.
    """
    if not everything:
        typer.echo(f"znnpy {znnpy.__version__}")
        return
    found = [*_system(), *_machine(), *_libraries()]
    width = max(len(name) for name, _ in found)
    for name, text in found:
        typer.echo(f"{name:{width}}  {text}")


def _system() -> Iterator[tuple[str, str]]:
    yield "znnpy", znnpy.__version__
    yield "python", f"{platform.python_implementation()} {platform.python_version()}"
    yield "system", platform.platform()


def _machine() -> Iterator[tuple[str, str]]:
    """Yield the CPU and vectors that kernels are compiled for, and the cores and memory of this process."""
    from znnpy.data.process_memory import available_memory, readable, total_memory
    from znnpy.plan.fingerprint import vectors
    from znnpy.scheduler.core_count import available_cores

    found = vectors()
    yield "cpu", f"{_cpu_name()}, compiled for as {_compiled_for()}"
    yield "vectors", f"{found['lanes']} floats ({found['features'] or 'no features named'})"
    yield "cores", f"{available_cores()} of {os.cpu_count()}"
    yield "memory", f"{readable(available_memory())} free of {readable(total_memory())}"
    yield "cache", _cache()


def _cpu_name() -> str:
    """Return the model as the system names it; without a name the architecture."""
    text = CPUS.read_text(errors="replace") if CPUS.exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def _compiled_for() -> str:
    from llvmlite import binding
    from numba import config

    return str(config.CPU_NAME or binding.get_host_cpu_name())


def _cache() -> str:
    from znnpy_kernels.machine import cache

    from znnpy.errors import told

    try:
        path = cache.root()
    except cache.CacheError as error:
        return _homeless(told(error))
    kept = sum(1 for _ in path.iterdir()) if path.is_dir() else 0
    return f"{_homeless(str(path))}, {kept} entries"


def _homeless(text: str) -> str:
    """Return text with the home directory replaced by ~."""
    home = str(Path.home())
    return text if home == "/" else re.sub(rf"{re.escape(home)}(?![^/\s])", "~", text)


def _libraries() -> Iterator[tuple[str, str]]:
    """Yield all packages that znnpy uses, with versions or as missing; the libraries of HDF5 and MPI."""
    used = [it for it in requires("znnpy") or () if not OTHERS.search(it)]
    names = [found[0] for it in used if (found := NAME.match(it))]
    for name in sorted({*names, "llvmlite", "numcodecs"} - {"znnpy"}, key=str.lower):
        try:
            yield name, version(name)
        except PackageNotFoundError:
            yield name, "not installed"
    yield "HDF5", _hdf5()
    yield "MPI", _mpi()


def _hdf5() -> str:
    import h5py

    return str(h5py.version.hdf5_version)


def _mpi() -> str:
    """Return the library that mpi4py finds; it is not started."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as error:
        return f"none ({str(error).splitlines()[0]})"
    return str(MPI.Get_library_version()).split("\n")[0].strip("\0 ")
