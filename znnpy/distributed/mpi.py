"""mpi4py's MPI, which everybody takes from here: it begins when ranks meet, not when it is imported.

Neither an import nor mpi4py's own call lets other threads run, one of which could end a wait without end.
"""

from __future__ import annotations

import ctypes

import mpi4py

mpi4py.rc.initialize = False
if mpi4py.rc.finalize is None:
    mpi4py.rc.finalize = True  # at exit, as where an import begins it

from mpi4py import MPI  # noqa: E402

__all__ = ["MPI", "address_of", "begin"]


def begin() -> None:
    """Meet the other ranks, for all of which MPI waits, however long; other threads run meanwhile."""
    if MPI.Is_initialized():
        return
    _library().MPI_Init_thread(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
    MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)  # as mpi4py does, for exceptions


def address_of(name: str) -> int:
    """Where a function of MPI's C library is."""
    return ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value or 0


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(MPI.__file__)  # finds what it is linked with
