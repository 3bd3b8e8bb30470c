"""Ranks that hold shards: who has what and when, no file after the beginning, the same bits, ends."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from launched import launched
from ranked import SECONDS, mpiexec, ranks_of, send
from small_run import command, final, held, state, write_config, znnpy

from znnpy.config import load_config
from znnpy.data import process_memory
from znnpy.data.process_memory import share_memory, take
from znnpy.data.sampling import sampler
from znnpy.distributed.world import World
from znnpy.errors import RunError, VolumeError
from znnpy.network import trained_network
from znnpy.train import shards
from znnpy.train.shards import Shards, Whole, training_source

BATCH = ("--set", "training.batch=4", "--set", "training.microbatch=1")
SHARDS = (*BATCH, "--set", "data.shards={exchange: 7}")
ITERATIONS = 40


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path, ITERATIONS)


def over(ranks, config, *words, code=0, script=None):
    words = (config, *SHARDS, *words)
    line = [sys.executable, "-c", script, *words] if script else command("train", *words)
    done = subprocess.run(mpiexec(ranks, *line), capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode != 0) == (code != 0), done.stdout + done.stderr
    return done.stdout + done.stderr


def whole(run):
    """All that must be the same, wherever it lies."""
    *rest, small = final(run)
    return *rest, [text.replace(str(run.parent).encode(), b"") for text in small]


HOLD = """
import hashlib, json, sys, time, weakref
from znnpy.config import load_config
from znnpy.data.sampling.blocks import load
from znnpy.distributed.world import World
from znnpy.network import trained_network
from znnpy.train import shards

config = load_config(sys.argv[1], json.loads(sys.argv[2]))
shards.SLICE = 1000
with World.open() as world:
    sizes, seen, move = [], [], world.move
    def alive(expected=0):
        # The thread of messages may be about to drop one that it has just handed over.
        until = time.monotonic() + 60
        while (found := sum(it() is not None for it in seen)) > expected and time.monotonic() < until:
            time.sleep(0.001)
        return found
    def noted(out, into):
        sizes.extend(parcel.memory.nbytes for parcel in (out, into) if parcel)
        if into and into.memory.obj.base is not None and not any(it() is into.memory.obj.base for it in seen):
            seen.append(weakref.ref(into.memory.obj.base))
        assert (found := alive(most + 1)) <= most + 1, (found, most)
        move(out, into)
    world.move = noted
    found = shards.Shards.open(config, trained_network(config), world, 0)
    room = shards._needed(found._blocks, world.size)
    most = -(-len(found._blocks) // world.size)
    seen += [weakref.ref(memory) for memory in found._held.values()]
    for period, _ in zip(range(6), found.periods(0)):
        for n, memory in found._held.items():
            print(json.dumps([period, world.rank, n, hashlib.md5(memory.tobytes()).hexdigest()]), flush=True)
        del memory
        assert sum(it.nbytes for it in found._held.values()) < room
        assert alive(len(found._held)) == len(found._held)
        found.sample(0)
    assert world.messenger.carried.bytes == sum(sizes)
    assert max(sizes) == 1000 and len(sizes) > 20, sizes
"""
OVERRIDES = ["training.batch=4", "training.microbatch=1", "data.shards={exchange: 7}"]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])  # three have shares that differ
def test_every_block_is_one_rank_s_and_all_move_in_slices(config, ranks):
    lines = [json.loads(it) for it in launched(ranks, HOLD, config, json.dumps(OVERRIDES))]
    contents = {}
    for period in range(6):
        found = {n: rank for at, rank, n, _ in lines if at == period}
        assert len(found) == sum(at == period for at, *_ in lines) >= 4 * ranks
        assert set(found.values()) == set(range(ranks))
        contents[period] = {n: content for at, _, n, content in lines if at == period}
    assert all(found == contents[0] for found in contents.values())
    visits = {n: {rank for _, rank, block, _ in lines if block == n} for n in contents[0]}
    assert sum(len(ranks) > 1 for ranks in visits.values()) > len(visits) / 2


@pytest.mark.slow
def test_one_process_has_all_and_the_key_changes_nothing(config, tmp_path):
    znnpy("train", config, *SHARDS)
    other = tmp_path / "other"
    znnpy("train", config, *BATCH, "--set", f"run.directory={other}")
    assert final(tmp_path / "run")[0][1:] == final(other)[0][1:]


STOPPED_READING = """
import os, sys
from znnpy.cli import main
from znnpy.data.hdf5.volume import Hdf5Volume
from znnpy.train.loop import Loop
run = Loop.run
def deaf(self):
    def refuse(*_):
        raise AssertionError("a file is read")
    Hdf5Volume._read = refuse
    return run(self)
Loop.run = deaf
main(["train", *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    words = ("--set", "data.test=[]")
    said = over(2, write_config(folder, ITERATIONS), *words, script=STOPPED_READING)
    assert "blocks in the memory of 2 ranks" in said
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize("at", [5, 16])
def test_bits_repeat_without_reading_and_through_a_stop(undisturbed, config, at):
    """Stopped in the first period, and in the third."""
    again, words = config.parent / "run", ("--set", "data.test=[]")
    sent = config.parent / "sent"
    line = mpiexec(2, *held(30, sent, config, *SHARDS, *words))
    late = {**os.environ, "ZNNPY_DELAYS": f"{at}:0.02"}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=late) as run:
        while run.poll() is None and lines_of(again / "log.jsonl") < at:
            time.sleep(0.01)
        send(signal.SIGINT, ranks_of(run).values())
        sent.touch()
        run.communicate(timeout=SECONDS)
    assert run.returncode == 130
    over(2, config, *words)
    assert state(again) == state(undisturbed)


def lines_of(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.slow
def test_another_number_of_ranks_goes_on(config, tmp_path):
    words = ("--set", "data.test=[]")
    over(3, config, *words, "--set", "training.iterations=10")
    over(2, config, *words, "--set", "training.iterations=20")
    znnpy("train", config, *SHARDS, *words)
    assert lines_of(tmp_path / "run/log.jsonl") >= ITERATIONS


FAIL = """
import os, signal, sys
from znnpy.cli import main
from znnpy.distributed import failure_detector
from znnpy.errors import RunError
from znnpy.train.shards import Shards
how, rank, pass_on = sys.argv[1], sys.argv[2], Shards._pass_on
if how == "SIGSTOP":
    failure_detector.BEAT = 0.4  # the others shall not wait for long
def failing(self, wave):
    if os.environ["PMI_RANK"] == rank:
        if how == "exception":
            raise RunError("this rank fails")
        os.kill(os.getpid(), getattr(signal, how))
    pass_on(self, wave)
Shards._pass_on = failing
main(["train", *sys.argv[3:]])
"""
SAID = {"SIGKILL": "killed", "SIGSTOP": "has not answered", "exception": "rank 1 (pid"}


@pytest.mark.slow
def test_a_rank_that_fails_in_an_exchange_ends_all(config, tmp_path):
    """And the next command goes on, whether it fails as well or makes the run that nothing disturbed."""
    for how, expected in SAID.items():
        line = mpiexec(3, sys.executable, "-c", FAIL, how, 1, config, *SHARDS)
        done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode != 0
        assert expected in (done.stdout + done.stderr).lower()
    over(3, config)
    (tmp_path / "undisturbed").mkdir()
    over(3, write_config(tmp_path / "undisturbed", ITERATIONS))
    assert whole(tmp_path / "run") == whole(tmp_path / "undisturbed/run")


class Several(World):
    """Some ranks, all of which say what this one says."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def exchange(self, value):
        return [value] * self.size


def opened(path, *overrides, ranks=4):
    config = load_config(path, (*OVERRIDES, *overrides))
    return Shards.open(config, trained_network(config), Several(ranks), 0)


def ranges_of(found):
    return [found._blocks[number].ranges for number in sorted(found._held)]


def test_samples_are_of_seed_number_period_and_rank(config):
    found = opened(config)
    assert all(
        (a == b).all()
        for a, b in zip(
            found.sample(3).images.values(), opened(config).sample(3).images.values(), strict=True
        )
    )
    other = opened(config, "training.seed=1")
    assert ranges_of(found) != ranges_of(other)


def test_shuffled_order_takes_each_held_place_once_an_epoch(config):
    found = opened(
        config, "training.order=shuffled", "augment.enabled=false", "data.normalize=none", ranks=2
    )
    positions = sum(found._blocks[number].positions for number in found._held)
    assert found._count == 2
    own = [4 * update + place for update in range(positions // 2) for place in range(2)]
    numbers = [found._number(index) for index in own]
    assert numbers == list(range(len(own)))
    drawn = {found.sample(index).images["input"].tobytes() for index in own}
    assert len(drawn) == len(own)


def masked(config, *where):
    """The config with a mask in which only these voxels count."""
    with h5py.File(config.parent / "data.h5", "a") as file:
        mask = np.zeros(file["raw"].shape, np.uint8)
        for part in where:
            mask[part] = 1
        file["mask"] = mask
    path = config.parent / "masked.yaml"
    path.write_text(
        config.read_text().replace(
            "labels: data.h5:labels}]\n  val", "labels: data.h5:labels, mask: data.h5:mask}]\n  val"
        )
    )
    assert "mask" in path.read_text()
    return path


STRAY = (slice(8, None, 6), slice(None, None, 12), slice(None, None, 12))


@pytest.mark.parametrize("stray", [[], [STRAY]])
def test_blocks_in_which_hardly_anything_counts_are_left_out(config, stray):
    everything, found = opened(config), opened(masked(config, slice(6), *stray))
    left_out = len(everything._blocks) - len(found._blocks)
    assert 4 <= len(found._blocks) < len(everything._blocks)
    assert found.described().endswith(
        f"; {left_out} more, in which hardly anything counts, are left out"
    )
    assert "left out" not in everything.described()
    for index in range(20):
        assert found.sample(index).weights["output"].any()


def test_masks_that_leave_nothing_are_told_as_such(config):
    with pytest.raises(
        VolumeError, match=r"data.train: no voxel counts; the masks .*h5:raw leave nothing"
    ):
        opened(masked(config))


def test_too_little_in_a_rank_s_blocks_is_told_with_them(config, monkeypatch):
    found = opened(masked(config, slice(6)))
    monkeypatch.setattr(sampler, "ATTEMPTS", 0)
    with pytest.raises(
        VolumeError,
        match=r"leave too little in the blocks that rank 0 has for updates 0 to 6; .*data.shards",
    ):
        found.sample(3)


def test_a_rank_needs_memory_for_its_largest_blocks_and_one_that_comes():
    blocks = [SimpleNamespace(bytes=size) for size in (5, 1, 20, 4, 3)]
    assert [shards._needed(blocks, ranks) for ranks in (1, 2, 3, 5)] == [33, 32, 29, 25]


def test_what_cannot_be_divided_is_refused_with_its_place(config, monkeypatch):
    words = config.read_text().replace("training:", "  shards: {exchange: 7}\ntraining:", 1)
    config.write_text(words)
    place = f"yaml:{words.splitlines().index('  shards: {exchange: 7}') + 1}: data.shards: "
    overrides = ["training.batch=13", "training.output_shape=[16, 20, 20]"]
    large = load_config(config, overrides)
    with pytest.raises(RunError, match=f"{place}13 ranks .* start at most 3"):
        Shards.open(large, trained_network(large), Several(13), 0)
    monkeypatch.setattr(shards, "available_memory", lambda: 20_000)
    with pytest.raises(RunError, match=f"{place}.* KiB .*only 19.5 KiB are avail"):
        Shards.open(large, trained_network(large), Several(3), 0)


def test_ranks_that_see_other_volumes_are_refused(config, monkeypatch):
    def exchange(_, value):
        return [value] * 2 if isinstance(value, dict) else [value, "of other blocks"]

    monkeypatch.setattr(Several, "exchange", exchange)
    with pytest.raises(RunError, match="rank 1 sees other volumes"):
        opened(config, ranks=2)


def test_alone_all_volumes_are_in_memory(config):
    found = load_config(config, OVERRIDES)
    with ExitStack() as stack:
        source = training_source(stack, found, trained_network(found), World(), 0)
        assert isinstance(source, Whole)
        (config.parent / "data.h5").unlink()
        assert next(source.periods(3)) is None
        source.sample(0)


def test_files_are_counted_no_longer_than_they_are_held(config, monkeypatch):
    def whole(*words):
        take(1 << 30)
        return open_sampler(*words)

    open_sampler = shards.open_sampler
    monkeypatch.setattr(shards, "open_sampler", whole)
    monkeypatch.setattr(process_memory, "_part", None)
    share_memory(4, 1 << 40)
    found = opened(config)
    assert process_memory._part.taken == shards._needed(found._blocks, 4)
