"""Processes that cannot become ranks say in one line why."""

import os
import subprocess
import sys

import pytest

TRAIN = "import sys; {}; from znnpy.cli import main; main(['train', 'config.yaml'])"


def said(before, **environment):
    line = [sys.executable, "-c", TRAIN.format(before)]
    here = os.environ | environment
    done = subprocess.run(line, capture_output=True, text=True, env=here, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


@pytest.mark.slow
def test_without_mpi4py_one_line_says_what_to_install():
    words = said("sys.modules['mpi4py'] = None", PMI_RANK="0", PMI_SIZE="2")
    assert words == 'znnpy: a run over several ranks needs mpi4py: pip install "znnpy[mpi]"\n'


@pytest.mark.slow
def test_without_an_mpi_library_one_line_says_what_to_install():
    words = said("pass", PMI_RANK="0", PMI_SIZE="2", MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert words.endswith("pip install mpich\n")
    assert words.count("\n") == 1


@pytest.mark.slow
def test_another_rank_leaves_the_word_to_rank_0():
    assert said("sys.modules['mpi4py'] = None", PMI_RANK="1", PMI_SIZE="2") == ""


@pytest.mark.slow
def test_a_launcher_that_mpi_does_not_know_is_noticed():
    words = said("pass", SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="0")
    assert "4 ranks were started, but the MPI library of mpi4py sees this one alone" in words


def test_alone_nothing_of_mpi_is_loaded():
    code = (
        "import sys\nfrom znnpy.cli import main\ntry: main(['train', 'no.yaml'])\n"
        "except SystemExit: print([name for name in sys.modules if 'mpi4py' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "no.yaml" in done.stderr
    assert done.stdout == "[]\n"
