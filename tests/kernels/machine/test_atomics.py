"""Atomic operations: right values on one thread, nothing lost on several."""

import threading

import numpy as np
from znnpy_kernels.machine import atomics
from znnpy_kernels.machine.native import native


@native("void(int64,int64)")
def count_up(address: int, rounds: int) -> None:
    for _ in range(rounds):
        atomics.add_acq_rel(address, 1)


@native("void(int64,int64)")
def count_up_by_swaps(address: int, rounds: int) -> None:
    for _ in range(rounds):
        while True:
            seen = atomics.load_relaxed(address)
            if atomics.swap_acq_rel(address, seen, seen + 1):
                break


@native("Tuple((int64,int64,int64,boolean,boolean,int64,int32))(int64,int64)")
def every_operation(word: int, half: int) -> tuple[int, int, int, bool, bool, int, int]:
    atomics.store_seq_cst(word, 5)
    old = atomics.add_relaxed(word, 3)
    new = atomics.load_seq_cst(word)
    before = atomics.exchange_acq_rel(word, 40)
    failed = atomics.swap_seq_cst(word, 41, 0)
    swapped = atomics.swap_seq_cst(word, 40, -7)
    atomics.fence_seq_cst()
    atomics.pause()
    atomics.store_relaxed_32(half, -9)
    return (
        old,
        new,
        before,
        failed,
        swapped,
        atomics.load_acquire(word),
        atomics.load_relaxed_32(half),
    )


def test_values_on_one_thread() -> None:
    words = np.zeros(1, np.int64)
    halves = np.array([1, 2, 3], np.int32)
    result = every_operation(words.ctypes.data, halves.ctypes.data + 4)
    assert result == (5, 8, 8, False, True, -7, -9)
    assert halves.tolist() == [1, -9, 3]


def test_no_count_is_lost_between_threads() -> None:
    words = np.zeros(1, np.int64)
    for function in (count_up, count_up_by_swaps):
        function(words.ctypes.data, 0)
        words[0] = 0
        threads = [
            threading.Thread(target=function, args=(words.ctypes.data, 200_000)) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert words[0] == 600_000
