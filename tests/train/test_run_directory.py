import os
import shutil
import signal
import subprocess
import sys

import pytest

from znnpy.errors import RunError
from znnpy.train import run_directory
from znnpy.train.run_directory import RunDirectory, require_run

HOLD = """
import sys, pathlib
from znnpy.train.run_directory import RunDirectory
run = RunDirectory.open(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_dies(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match=f"in use by another process .pid {holder.pid}"):
            RunDirectory.open(tmp_path / "run", overwrite=True)
        holder.kill()
        holder.wait()
    RunDirectory.open(tmp_path / "run").close()


def test_a_lock_that_went_with_its_folder_holds_nothing(tmp_path, monkeypatch):
    """Another process may have a new one by the same name already."""
    path, lock = tmp_path / "run", run_directory.fcntl.flock

    def late(*given):
        monkeypatch.setattr(run_directory.fcntl, "flock", lock)
        shutil.rmtree(path)
        with RunDirectory.open(path) as run:
            run.begin("config", {})
        lock(*given)

    monkeypatch.setattr(run_directory.fcntl, "flock", late)
    with pytest.raises(RunError, match="repeat the command"):
        RunDirectory.open(path)
    RunDirectory.open(path).close()


def test_overwrite_removes_only_our_files(tmp_path):
    with RunDirectory.open(tmp_path / "run") as run:
        run.begin("config", {"znnpy": "1"})
        (run.checkpoints / "iteration-000000001.npz").write_bytes(b"")
        (run / "notes.txt").write_text("mine")
    with RunDirectory.open(tmp_path / "run", overwrite=True) as run:
        assert not run.started
        assert list(run.checkpoints.iterdir())  # the old run stays until the new one begins
        run.begin("config", {})
        assert run.started
        assert not list(run.checkpoints.iterdir())
        assert (run / "notes.txt").read_text() == "mine"


def test_ctrl_c_while_a_run_takes_the_place_of_another(tmp_path, monkeypatch):
    """Meanwhile neither is there: it ends the command once the new one is."""
    with RunDirectory.open(tmp_path / "run") as run:
        run.begin("old", {})
    remove = shutil.rmtree

    def interrupted(path, **rest):
        remove(path, **rest)
        if path == run.checkpoints:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with (
        RunDirectory.open(tmp_path / "run", overwrite=True) as run,
        pytest.raises(KeyboardInterrupt),
    ):
        run.begin("new", {}, lambda folder: (folder / "checkpoints").mkdir())
    assert sorted(path.name for path in run.path.iterdir()) == [
        "checkpoints", "config.yaml", "lock", "versions.json",
    ]  # fmt: skip
    assert (run / "config.yaml").read_text() == "new"


def test_overwrite_removes_what_a_killed_import_left(tmp_path):
    (tmp_path / ".run.tmp" / "checkpoints").mkdir(parents=True)
    with RunDirectory.open(tmp_path, overwrite=True) as run:
        run.begin("config", {})
    assert not (tmp_path / ".run.tmp").exists()


def test_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    for overwrite in (False, True):
        with pytest.raises(RunError, match=r"thesis\.tex"):
            RunDirectory.open(tmp_path, overwrite=overwrite)


def test_files_that_were_being_written_are_ours(tmp_path):
    names = [".config.yaml.tmp", ".prediction.png.tmp", "log.jsonl.damaged-12345678"]
    for name in names:
        (tmp_path / name).write_text("half")
    with RunDirectory.open(tmp_path, overwrite=True) as run:
        run.begin("config", {})
    assert not any((tmp_path / name).exists() for name in names)


def test_checkpoints_without_config_are_refused(tmp_path):
    with RunDirectory.open(tmp_path) as run:
        run.begin("config", {})
        (run / "config.yaml").unlink()
    with pytest.raises(RunError, match="no config"):
        RunDirectory.open(tmp_path)
    with pytest.raises(RunError, match="not a run directory"):
        require_run(tmp_path)


def test_a_file_in_the_way_is_a_clear_error(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(RunError, match="cannot make run directory"):
        RunDirectory.open(tmp_path / "run")


def test_a_directory_in_which_no_run_begins_is_taken_back(tmp_path):
    RunDirectory.open(tmp_path / "runs" / "a").close()
    assert list(tmp_path.iterdir()) == []
    with RunDirectory.open(tmp_path / "runs" / "a") as run:
        run.begin("config", {})
    with RunDirectory.open(tmp_path / "runs" / "b"):
        pass
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]
