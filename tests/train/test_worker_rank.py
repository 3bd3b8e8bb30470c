"""What a rank that follows holds, and what it says."""

import warnings
import weakref
from types import SimpleNamespace

from znnpy.errors import WaitWarning
from znnpy.train import worker_rank as following
from znnpy.train.worker_rank import follow


class Loop:
    """Where the data of a run hangs."""

    def run(self):
        pass


def test_a_rank_that_is_done_lets_go_of_its_data_and_warns_of_waits_alone(monkeypatch, recwarn):
    loops, told = [], []

    def begun(*_):
        warnings.warn("labels are odd", stacklevel=1)
        warnings.warn("waits for process 7", WaitWarning, stacklevel=1)
        loop = Loop()
        loops.append(weakref.ref(loop))
        return loop

    def exchange(_):
        told.append([loop() is None for loop in loops])
        return []

    monkeypatch.setattr(following, "_loop", begun)
    monkeypatch.setattr(following, "config_from", lambda it: it)
    said = iter([(0, False, 0, None)])

    def broadcast():
        told.append([loop() is None for loop in loops])
        return next(said, None)

    world = SimpleNamespace(rank=1, size=2, exchange=exchange, broadcast=broadcast)
    assert follow(world) is None
    assert told == [[], [], [True]]  # rank 0 scores the network while others wait in the last one
    assert [str(it.message) for it in recwarn] == ["waits for process 7"]
