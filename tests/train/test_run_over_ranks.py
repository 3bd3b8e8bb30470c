"""`mpiexec -n 4 znnpy train config.yaml`: the same run as one process makes, however ranks end in between."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from subprocess import PIPE

import pytest
from ranked import SECONDS, mpiexec, ranked, ranks_of, send
from small_run import command, final, held, state, write_config, znnpy

from znnpy.train.log import drop_after

TIMES = int(os.environ.get("ZNNPY_FAILURES", "0"))  # of each kind; 20 take some minutes
MICROBATCHES = ("--set", "training.batch=4", "--set", "training.microbatch=1")
ITERATIONS = 60


def started(ranks, config, *words, options=()):
    line = mpiexec(ranks, *command("train", config, *MICROBATCHES, *words), options=options)
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def over(ranks, config, *words, code=0):
    with started(ranks, config, *words) as run:
        out, said = run.communicate(timeout=SECONDS)
    assert run.returncode == code, out + said
    return said


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    znnpy("train", write_config(folder, ITERATIONS), *MICROBATCHES)
    return folder / "run"


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path, ITERATIONS)


def whole(run):
    """All that must be the same, wherever it lies."""
    *rest, small = final(run)
    return *rest, [text.replace(str(run.parent).encode(), b"") for text in small]


CHECK = """
import sys
from znnpy.cli import config_summary, main
from znnpy.data.process_memory import available
survey = config_summary.survey
def told(*words):
    print(available(0), file=sys.stderr)
    return survey(*words)
config_summary.survey = told
main(["check", *sys.argv[1:], "--json"])
"""
LACKS = """
import os, sys
from znnpy.cli import config_summary, main
from znnpy.errors import VolumeError
survey = config_summary.survey
def lacking(*words):
    if os.environ["PMI_RANK"] == "1":
        raise VolumeError("this host has no volume")
    return survey(*words)
config_summary.survey = lacking
main(["check", *sys.argv[1:]])
"""


@pytest.mark.slow
def test_check_looks_on_every_rank_and_speaks_once(config):
    split = ["--set", "training.microbatch=1"]  # as the network normalises over samples
    line = mpiexec(2, sys.executable, "-c", CHECK, config, *split)
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert done.stderr.count("available to each of 2 ranks of this host") == 2
    line = mpiexec(2, sys.executable, "-c", LACKS, config, *split)
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    # On a busy machine mpiexec ends the others before they end by themselves: with its own code and frame of words.
    assert done.returncode != 0
    assert not done.stdout or "BAD TERMINATION" in done.stdout
    assert done.stderr.count("znnpy: ") == 1
    assert "znnpy: rank 1 (pid " in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "check", "profile"])
def test_ranks_with_other_values_are_refused_before_anything_is_written(config, name):
    first, other = (
        mpiexec(1, *command(name, config, *MICROBATCHES, "--set", f"training.seed={seed}"))
        for seed in (1, 2)
    )
    line = [*first, ":", *other[1:]]
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1
    assert done.stderr.count("training.seed (rank 0 has 1, rank 1 has 2)") == 1, done.stderr
    assert sorted(it.name for it in config.parent.iterdir()) == ["config.yaml", "data.h5"]


LOOKS = """
import os, sys
from pathlib import Path
from znnpy.cli import main
from znnpy.data.sampling import volume_statistics
from znnpy.data.values import normalization
def counted(module, name):
    made = getattr(module, name)
    def look(*words, **keys):
        with open(Path(sys.argv[1]).parent / "looks", "a") as file:
            print(name, os.environ["PMI_RANK"], file=file)
        return made(*words, **keys)
    setattr(module, name, look)
counted(normalization, "moments")
counted(volume_statistics, "count_volume")
main(["train", *sys.argv[1:]])
"""


@pytest.mark.slow
def test_each_volume_is_looked_through_by_one_rank_with_the_bits_of_one_process(config, tmp_path):
    short = ("--set", "training.iterations=3", "--set", "training.rebalance=volume", *MICROBATCHES)
    short = (*short, "--set", "data.validation=[]")
    znnpy("train", config, *short, "--set", f"run.directory={tmp_path / 'alone'}")
    done = subprocess.run(
        mpiexec(3, sys.executable, "-c", LOOKS, config, *short),
        capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert state(tmp_path / "run") == state(tmp_path / "alone")
    looks = (tmp_path / "looks").read_text().splitlines()
    assert sorted(line.split()[0] for line in looks) == ["count_volume", "moments"]
    assert len({line.split()[1] for line in looks}) == 2


def wait_for(path, count, run):
    """Until a log has so many lines."""
    while run.poll() is None:
        if path.exists() and len(path.read_text().splitlines()) >= count:
            return
        time.sleep(0.01)


@pytest.mark.slow
def test_ranks_make_the_run_that_one_process_makes(undisturbed, config):
    """Started as mpiexec starts them, where other tests fork."""
    ranks = 2
    done = ranked(ranks, *command("train", config, *MICROBATCHES)[1:])
    said = done.stderr
    assert done.returncode == 0, said
    assert whole(config.parent / "run") == whole(undisturbed)
    assert said.count("validation  loss") == 2  # one rank speaks
    assert f"ranks: {ranks}" in said
    for line in (config.parent / "run/timings.jsonl").read_text().splitlines():
        told = json.loads(line)["ranks"]
        assert not told or [it["rank"] for it in told] == list(range(ranks))


@pytest.mark.slow
def test_ctrl_c_stops_all_and_another_number_of_ranks_goes_on(undisturbed, config):
    log = config.parent / "run/log.jsonl"
    for count, (ranks, number) in enumerate([(3, signal.SIGINT), (2, signal.SIGTERM)], 1):
        sent = config.parent / f"sent {count}"
        line = mpiexec(ranks, *held(45, sent, config, *MICROBATCHES))
        with subprocess.Popen(line, stdout=PIPE, stderr=PIPE, text=True) as run:
            wait_for(log, 15 * count, run)
            send(number, list(ranks_of(run).values())[: None if number == signal.SIGINT else 1])
            sent.touch()
            _, said = run.communicate(timeout=SECONDS)
        assert run.returncode == 128 + number, said
        assert said.count("stopped at iteration") == 1
    znnpy("train", config, *MICROBATCHES)
    assert whole(config.parent / "run") == whole(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("debug", [False, True])
def test_what_another_rank_cannot_open_is_told_with_its_number(config, debug):
    script = (
        "import os; from znnpy.cli import main\n"
        "from znnpy.train import patch_sources; from znnpy.errors import VolumeError\n"
        "def broken(*_): raise VolumeError('data.h5 is not here')\n"
        "if os.environ['PMI_RANK'] == '1': patch_sources.open_scene = broken\n"
        "main(['train', *__import__('sys').argv[1:]])"
    )
    words = (config, *MICROBATCHES, *["--debug"] * debug)
    line = mpiexec(2, sys.executable, "-c", script, *words)
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1
    assert ": rank 1 (pid " in done.stderr
    places = [line for line in done.stderr.splitlines() if ", in broken" in line]
    assert [line.partition(":")[0] for line in places] == ["rank 1"] * debug
    assert done.stderr.count("data.h5 is not here") == 1
    assert not (config.parent / "run").exists()


POISON = """
import itertools, os, sys
import numpy as np
from znnpy.cli import main
from znnpy.train import loop
submit, first = loop.Loop._submit, 2 * int(os.environ.get("PMI_RANK", 0))
def poisoned(self):
    if self._submitted == 4:
        batch = next(self._batches)
        share = next(iter(batch.input.values()))
        if first <= 3 < first + len(share):
            share[3 - first, 0, 1, 2, 3] = np.nan
        self._batches = itertools.chain([batch], self._batches)
    submit(self)
loop.Loop._submit = poisoned
main(["train", *sys.argv[1:]])
"""


def diverged(line):
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1, done.stderr
    return done.stderr[done.stderr.index("znnpy: ") :]


@pytest.mark.slow
def test_a_loss_that_only_another_rank_spoils_is_told_as_by_one_process(config):
    words = (config, *MICROBATCHES, "--overwrite")
    alone = diverged([sys.executable, "-c", POISON, *map(str, words)])
    assert "the loss is nan at iteration 5; " in alone
    assert "inputs are not finite, the first nan at (3, 0, 1, 2, 3)" in alone
    assert diverged(mpiexec(2, sys.executable, "-c", POISON, *words)) == alone


@pytest.mark.slow
def test_weights_that_only_rank_0_looks_at_end_all(config):
    said = over(
        2, config, "--set", "training.iterations=1", "--set", "training.learning_rate=1e39", code=1
    )
    assert said.count("is not finite after iteration 1;") == 1
    assert said.count("znnpy: ") == 1


SLOW = """
import os, sys, time
from pathlib import Path
from znnpy.cli import main
from znnpy.train import run_writer, worker_rank
checkpoints = Path(sys.argv[1]).parent / "run/checkpoints"
if os.environ["PMI_RANK"] == "0":
    save = run_writer.save
    def slow(*words):
        time.sleep(1)
        save(*words)
    run_writer.save = slow
else:
    save = worker_rank.Bystander.save
    def looked(self, model, iteration):
        save(self, model, iteration)
        with open(checkpoints.parent.parent / "seen", "a") as file:
            print(iteration, (checkpoints / f"iteration-{iteration:09}.npz").exists(), file=file)
    worker_rank.Bystander.save = looked
main(["train", *sys.argv[1:]])
"""


@pytest.mark.slow
def test_all_ranks_wait_until_a_checkpoint_is_there(config):
    words = (config, *MICROBATCHES, "--set", "training.iterations=3", "--set", "data.validation=[]")
    line = mpiexec(2, sys.executable, "-c", SLOW, *words)
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert (config.parent / "seen").read_text().splitlines() == ["0 True", "3 True"]


FAIL = """
import os, sys
from znnpy.cli import main
from znnpy.errors import RunError
from znnpy.train import loop
from znnpy.distributed import failure_detector
rank, at, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if kind == "SIGSTOP":
    failure_detector.BEAT = 0.4  # the others shall not wait for long
if kind == "exception" and int(os.environ["PMI_RANK"]) == rank:
    submit = loop.Loop._submit
    def failing(self):
        if self._submitted == at:
            raise RunError("this rank fails")
        submit(self)
    loop.Loop._submit = failing
main(["train", *sys.argv[4:]])
"""


def failed(kind, rng, config):
    """One run over 3 ranks with a failure at a random time; its exit status, and what was said.

    It goes on with the run that is there, but where that has come further.
    """
    rank, at, there = rng.randrange(3), rng.randrange(1, ITERATIONS), config.parent / "run"
    done = max((int(path.stem[-9:]) for path in there.glob("checkpoints/*.npz")), default=0)
    if at <= done:
        shutil.rmtree(there)
    drop_after(there / "log.jsonl", done)  # as the run will: now all that comes is of this run
    line = mpiexec(3, sys.executable, "-c", FAIL, rank, at, kind, config, *MICROBATCHES)
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        if kind != "exception":
            wait_for(there / "log.jsonl", at, run)
            time.sleep(rng.random() / 10)
            send(getattr(signal, kind), [it for n, it in ranks_of(run).items() if n == rank])
        out, said = run.communicate(timeout=SECONDS)
        return run.returncode, out + said


SAID = {
    "SIGKILL": "killed",
    "SIGSTOP": "has not answered|have not (begun|ended)",
    "exception": "this rank fails",
}


@pytest.mark.slow
def test_a_failing_rank_ends_all_and_the_run_goes_on(undisturbed, config):
    rng, run = random.Random(1), config.parent / "run"
    for kind in [kind for kind in SAID for _ in range(max(TIMES, 1))]:
        code = 0
        while code == 0:
            code, said = failed(kind, rng, config)
            if code == 0:  # it came when all was done
                shutil.rmtree(run)
        assert re.search(SAID[kind], said.lower()), said
    over(4, config)
    assert whole(run) == whole(undisturbed)
