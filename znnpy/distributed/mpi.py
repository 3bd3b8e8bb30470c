"""Imports mpi4py without starting MPI, and starts it (`begin`) when ranks meet.

MPI is started by a call that releases the GIL, unlike an import or mpi4py's own call: other threads must run
meanwhile, one of which can end a wait that has no end of its own.
"""

from __future__ import annotations

import ctypes

import mpi4py

# Set before `MPI` is imported, which would begin it.
mpi4py.rc.initialize = False
if mpi4py.rc.finalize is None:
    # Only where the caller has not decided: a run over ranks ends MPI itself.
    mpi4py.rc.finalize = True  # at exit, as where an import begins it

from mpi4py import MPI  # noqa: E402

__all__ = ["MPI", "address_of", "begin"]


def begin() -> None:
    """Start MPI, which waits for all ranks, however long; other threads run meanwhile."""
    if MPI.Is_initialized():
        return
    # The level that was provided is asked from mpi4py later (`Messenger`), so its place is dropped.
    _library().MPI_Init_thread(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
    MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)  # as mpi4py does, for exceptions


def address_of(name: str) -> int:
    """Return the address of a function of MPI's C library."""
    return ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value or 0


def _library() -> ctypes.CDLL:
    # mpi4py's own extension module: its symbols are those of the library that it was built for or has found.
    return ctypes.CDLL(MPI.__file__)  # finds what it is linked with
