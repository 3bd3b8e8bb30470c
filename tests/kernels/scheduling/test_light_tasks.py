"""Light tasks: those that run in the thread that a message's arrival wakes, and those that do not."""

from __future__ import annotations

import numpy as np
from served import Library, Serving
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.atomics import add_acq_rel
from znnpy_kernels.machine.memory import floats, longs
from znnpy_kernels.scheduling.control_block import RELEASING
from znnpy_kernels.scheduling.light_tasks import WAITING
from znnpy_kernels.scheduling.mailbox import post
from znnpy_kernels.scheduling.messages import GRAPH

from znnpy.graph import GraphBuilder, Named
from znnpy.scheduler import Executor

WHO = words("next place")


@kernel(WHO)
def write_down(args, worker):
    """Write the number of whoever runs the task where the next one is to be written, and twice a denormal number."""
    place = add_acq_rel(args[WHO.next], 1)
    longs(args[WHO.place])[place] = worker
    number = floats(args[WHO.place] + 8 * 1024 + 4)[0]
    floats(args[WHO.place] + 8 * 1024)[0] = number + number


class Written:
    """A graph of tasks that write down who ran them, and the memory that they write to."""

    def __init__(self):
        self.builder, self.next = GraphBuilder(), np.zeros(1, np.int64)
        self.who = np.full(1025, -1, np.int64)
        self.numbers = self.who[1024:].view(np.float32)
        self.numbers[:] = 1, 1e-40

    def task(self, light, phase=-1, group=-1):
        given = write_down.arguments(next=self.next.ctypes.data, place=self.who.ctypes.data)
        what = Named("written")
        return self.builder.task(
            write_down.address, given, what, cost=1.0, phase=phase, group=group, light=light
        )

    def after(self, before, light, group=-1):
        self.builder.precede(before, found := self.task(light, group=group))
        return found

    def run(self, phases=1, group=0, count=1, **options):
        """Release phases by messages, and return who ran the tasks, in turn."""
        with Executor(self.builder.build(), workers=1, **options) as executor:
            library = Library([[100 + phase] for phase in range(phases)])
            serving = Serving(library, phases, range(phases), int(executor.control.ctypes.data))
            serve(serving, library, range(phases))
            assert executor.wait(group, count)
            assert executor.control[RELEASING // 8] == 0
            assert executor.recording()[0].executed == np.count_nonzero(self.who[:1024] == 0)
        return self.who[: self.next[0]].tolist()


def serve(serving, library, posts):
    """Serve messages until all have come, however late this thread has its turns."""
    assert serving.rest(*posts, seconds=0.01) == ([], [])
    while library.rounds:
        assert serving.rest(seconds=0.01) == ([], [])


WORKER, SERVER = 0, 1  # the number that is no worker's


def test_light_tasks_run_where_their_message_arrives_with_denormals_flushed():
    graph = Written()
    first = graph.task(light=True, phase=0)
    graph.after(first, light=True, group=0)
    assert graph.run() == [SERVER, SERVER]
    assert graph.numbers[0] == 0


def test_what_is_not_light_goes_to_a_worker_and_what_follows_it_stays_there():
    graph = Written()
    first = graph.task(light=True, phase=0)
    second = graph.after(first, light=False)
    graph.after(second, light=True, group=0)
    assert graph.run() == [SERVER, WORKER, WORKER]


def test_a_light_task_waits_for_all_its_messages():
    graph = Written()
    ends = [graph.task(light=True, phase=phase) for phase in range(3)]
    last = graph.task(light=True, group=0)
    for end in ends:
        graph.builder.precede(end, last)
    assert graph.run(phases=3) == [SERVER] * 4


def test_workers_run_light_tasks_while_events_are_recorded():
    graph = Written()
    graph.after(graph.task(light=True, phase=0), light=True, group=0)
    assert graph.run(record=8) == [WORKER, WORKER]


def test_whoever_releases_a_step_runs_what_is_light_in_it():
    graph = Written()
    first = graph.task(light=True, phase=0)
    graph.after(graph.after(first, light=False), light=True, group=0)
    with Executor(graph.builder.build(), workers=1) as executor:
        for number in range(2):
            executor.release(0)
            assert executor.wait(0, number + 1)
        assert executor.released(0) == 2
    assert graph.who[:6].tolist() == [SERVER, WORKER, WORKER] * 2


def test_what_light_tasks_post_starts_in_the_same_look():
    graph = Written()
    with_post = graph.builder
    library = Library([[100]])
    serving = Serving(library, 2, [0, 1])
    given = post.arguments(mailbox=serving.mailbox, number=1)
    with_post.task(post.address, given, Named("post"), cost=1.0, phase=0, group=0, light=True)
    with Executor(with_post.build(), workers=1) as executor:
        serving.graph[GRAPH.control] = executor.control.ctypes.data
        # Until a time that is over: one look.
        assert serving.rest(0, seconds=-1.0) == ([], [])
    assert library.started == [100, 101]


def test_more_light_tasks_than_may_wait_go_to_workers():
    graph, more = Written(), 40
    for _ in range(WAITING + more):
        graph.task(light=True, phase=0, group=0)
    who = graph.run()
    assert who.count(SERVER) == WAITING
    assert who.count(WORKER) == more


def test_light_tasks_are_started_again_and_again():
    graph = Written()
    graph.after(graph.task(light=True, phase=0), light=True, group=0)
    with Executor(graph.builder.build(), workers=1) as executor:
        for number in range(3):
            library = Library([[100]])
            serve(Serving(library, 1, [0], int(executor.control.ctypes.data)), library, [0])
            assert executor.wait(0, number + 1)
    assert graph.who[:6].tolist() == [SERVER] * 6
