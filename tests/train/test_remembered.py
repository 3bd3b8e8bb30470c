"""Patches remembered with a run: predictions agree, and what cannot be read or written costs a line."""

from __future__ import annotations

import json
import subprocess

import pytest
from small_run import command, write_config, znnpy

from znnpy.train.run_directory import PATCHES, remember, remembered


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    znnpy("train", write_config(folder, iterations=10))
    return folder


def predict(folder, output, *words):
    line = ["predict", folder / "run", "--input", f"{folder / 'data.h5'}:raw", "--output", output]
    return znnpy(*line, *words)


@pytest.mark.slow
def test_a_prediction_remembers_its_patch_and_the_next_takes_it(folder, tmp_path):
    predict(folder, tmp_path / "dry.h5", "--dry-run")
    assert not (folder / "run" / PATCHES).exists()
    predict(folder, tmp_path / "one.h5")
    kept = json.loads((folder / "run" / PATCHES).read_text())
    ((name, record),) = kept.items()
    assert record["patch"] == [18, 20, 20]
    kept[name]["patch"] = [5, 6, 7]
    (folder / "run" / PATCHES).write_text(json.dumps(kept))
    assert "5 x 6 x 7" in predict(folder, tmp_path / "dry.h5", "--dry-run").stdout
    predict(folder, tmp_path / "two.h5", "--borders", "mirror")
    assert len(json.loads((folder / "run" / PATCHES).read_text())) == 2


@pytest.mark.quick(1)
@pytest.mark.parametrize("text", ["{", "[]", "7", '{"a": 7}', "[" * 100_000, "\udcff", "null"])
def test_damaged_file_costs_a_line(folder, tmp_path, text):
    path = folder / "run" / PATCHES
    path.write_bytes(text.encode(errors="surrogateescape"))
    done = predict(folder, tmp_path / "out.h5")
    lines = done.stderr.splitlines()
    assert sum("note: " in line for line in lines) == (text != '{"a": 7}')
    assert "Traceback" not in done.stderr
    assert [18, 20, 20] in [r["patch"] for r in json.loads(path.read_text()).values() if r != 7]


def test_run_directory_that_cannot_be_written(tmp_path):
    said: list[str] = []
    (tmp_path / "file").write_text("")
    remember(tmp_path / "missing", {"a": 1}, said.append)
    (tmp_path / PATCHES).mkdir()  # root may write anywhere, but cannot replace a folder by a file
    remember(tmp_path, {"a": 1}, said.append)
    assert len(said) == 2
    assert all("not remembered" in line for line in said)
    assert remembered(tmp_path, said.append) == {}


def test_what_is_remembered_anew_replaces_what_was(tmp_path):
    for records in ({"a": 1, "b": 1}, {"b": 2, "c": 2}):
        remember(tmp_path, records, pytest.fail)
    assert remembered(tmp_path, pytest.fail) == {"a": 1, "b": 2, "c": 2}


@pytest.mark.slow
def test_several_processes_remember_at_once(tmp_path):
    words = "from pathlib import Path; import sys; from znnpy.train.run_directory import remember; "
    words += "[remember(Path(sys.argv[1]), {f'{sys.argv[2]} {n}': n}, print) for n in range(20)]"
    line = [command()[0], "-c", words, str(tmp_path)]
    started = [subprocess.Popen([*line, str(number)]) for number in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert len(remembered(tmp_path, print)) == 60
