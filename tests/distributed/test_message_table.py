"""Messages by number, as Python tells compiled code of them."""

from __future__ import annotations

import ctypes

import pytest
from znnpy_kernels.scheduling.messages import GRAPH

from znnpy.distributed.transfers import Transfer, Way

pytest.importorskip("mpi4py")


def test_a_request_is_freed_by_the_handle_that_the_library_gave_it_last() -> None:
    from znnpy.distributed.message_table import HANDLE, Log, MessageTable
    from znnpy.distributed.mpi import MPI

    table = MessageTable([Transfer(Way.SEND, 1, tag, (), tag) for tag in range(3)], None, Log())
    request, nothing = MPI.Prequest(), MPI.Prequest()
    handle = ctypes.c_int64 if HANDLE == 8 else ctypes.c_int32
    own, null = (handle.from_address(MPI._addressof(it)) for it in (request, nothing))
    own.value = 77
    table.prepared(1, request, again=True)
    words = (ctypes.c_int64 * len(GRAPH)).from_address(table.address)
    kept = handle.from_address(words[GRAPH.handles] + 8)
    assert kept.value == 77
    kept.value = 78  # as Open MPI's MPI_Start does where a send is still in its buffers
    table.given_back(1, request)
    assert own.value == 78
    own.value = null.value
