"""Lets test modules import the helpers that stand beside this file, and says what runs at once and what is quick."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path

# Before NumPy is loaded, here and in what tests start: threads of BLAS wait for each other by spinning, a fifth of the
# processor time of what is compared with the reference.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from guard import Guard
from shares import left_out, slow_cases

from znnpy import locks

GUARD = pytest.StashKey[Guard]()
COMPILE = Path(__file__).parents[1] / "scripts" / "compile_kernels"
# Set in some containers: else what tests start would compile all its modules, or write lines apart from their ends.
UNSET = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")


def pytest_configure(config: pytest.Config) -> None:
    """Draw fewer examples where slow tests are left out; hear Ctrl-C here and in what tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in UNSET:
        os.environ.pop(name, None)
    # Tests that run beside plan and measure with the same locks: who has to wait for them says nothing of it.
    locks.PATIENCE = 600.0
    quick = "not slow" in config.option.markexpr
    settings.load_profile("quick" if quick else "untimed")
    config.stash[GUARD] = Guard(os.dup(2))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile what is missing before all of the suite is run: else each test that needs it would, at once."""
    if not whole_suite(session.config):
        return
    with session.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        if subprocess.run([sys.executable, COMPILE], check=False).returncode:
            pytest.exit("kernels cannot be compiled", returncode=1)


def whole_suite(config: pytest.Config) -> bool:
    """Whether tests are run here, or in processes that this one starts, and none were named."""
    chosen = config.option.keyword or config.option.collectonly or hasattr(config, "workerinput")
    return not chosen and config.args_source is pytest.Config.ArgsSource.TESTPATHS


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Have each test watched; only where tests are run is there a guard at work."""
    with item.config.stash[GUARD].watching(item.nodeid):
        return (yield)


def pytest_xdist_auto_num_workers() -> int:
    """One more than the cores that this process may use, as tests also sleep; only this process where there is one."""
    cores = len(os.sched_getaffinity(0))
    return cores + 1 if cores > 1 else 0


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage among modules and tests: they stay, and to walk through them takes a fifth of collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of tests that run a share; mark as slow what others leave out of their quick share.

    Before pytest chooses by marks.
    """
    if not os.environ.get("ZNNPY_CASES"):
        others = left_out(items, "share")
        config.hook.pytest_deselected(items=others)
        named = {item.nodeid for item in others}
        items[:] = [item for item in items if item.nodeid not in named]
    for item in slow_cases(items):
        item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def _no_graph_is_kept() -> Iterator[None]:
    """Keep no connected graphs, but where a test says so: others change the code that tasks follow from.

    Where one does, sources that were saved just before, or meanwhile, are as good as older ones.
    """
    from znnpy.engine.kept import graphs, keys  # after what `pytest_configure` sets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "LEAST_CALLS", sys.maxsize)
        patch.setattr(keys, "BEGAN", inf)
        yield
