"""A test that hangs ends its process, and says where."""

from __future__ import annotations

import os
import time

from children import forked
from guard import Guard


def hang(pipe: int) -> None:
    child = os.fork()
    if child == 0:
        time.sleep(600)
    os.write(pipe, f"{child}\n".encode())
    with Guard(pipe, limit=0.1, poll=0.01).watching("test_of_patience"):
        time.sleep(600)


def test_it_says_where_and_leaves_no_child() -> None:
    """The pipe ends when nobody holds it any more."""
    status, said = forked(hang)
    child, _, rest = said.decode().partition("\n")
    assert status == 1
    assert "test_of_patience hangs" in rest
    assert "in hang" in rest
    assert child.isdecimal()
