import json
import os
import re
import resource
import subprocess
import sys
import warnings

import pytest
from called import status_of
from ruamel.yaml import YAML

import znnpy
from znnpy.cli import app, main
from znnpy.cli.predict import SEAMS, spelled_out
from znnpy.config import load_config
from znnpy.errors import ZnnpyError


def run(capsys, *words):
    """Exit status, stdout and stderr of a command line."""
    return status_of(*words), *capsys.readouterr()


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"znnpy {znnpy.__version__}\n", "")


def test_what_shows_pictures_elsewhere_does_not_matter(monkeypatch):
    """A notebook's environment names what its commands' need not have, and matplotlib refuses to begin without it."""
    monkeypatch.setenv("MPLBACKEND", "nonsense")
    assert status_of("--version") == 0
    assert os.environ["MPLBACKEND"] == "agg"


def test_without_words_the_commands_are_listed(capsys):
    with pytest.raises(SystemExit):
        main([])
    assert "train" in capsys.readouterr().out


def test_the_package_lists_its_public_names():
    found = subprocess.run(
        [sys.executable, "-c", "import znnpy; print(*dir(znnpy))"], capture_output=True, text=True
    )
    classes = ["Execution", "Hardware", "Model", "Objects", "Optimizer", "Run", "Training"]
    functions = ["from_torch", "load_network", "open_run", "score", "segment", "train"]
    assert found.stdout.split() == [*classes, "__version__", *functions]


def test_init_writes_a_config_that_loads_and_never_replaces_one(capsys, tmp_path):
    path = tmp_path / "config.yaml"
    assert run(capsys, "init", path)[0] == 0
    load_config(path)
    before = path.read_text()
    code, _, errors = run(capsys, "init", path)
    assert (code, path.read_text()) == (1, before)
    assert errors.startswith("znnpy: ")
    assert "--overwrite" in errors
    first, rest = before.split("\n", 1)
    assert run(capsys, "init")[1] == rest
    named = first.removeprefix("# yaml-language-server: $schema=")
    beside = tmp_path / named
    # Text of pydantic 2.10, which leaves some defaults out where a process asks again, differs.
    printed = json.loads(run(capsys, "schema")[1])
    assert json.loads(beside.read_text())["properties"].keys() == printed["properties"].keys()
    beside.write_text("{}")  # of another version
    assert run(capsys, "init", tmp_path / "other.yaml")[0] == 0
    assert beside.read_text() == "{}"
    assert run(capsys, "init", path, "--overwrite")[0] == 0
    assert "network" in json.loads(beside.read_text())["properties"]


def test_init_writes_the_whole_file_or_none(capsys, tmp_path, monkeypatch):
    # What is imported meanwhile would be kept cut off, and fail whoever imports it next.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        code, _, errors = run(capsys, "init", tmp_path / "config.yaml")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 1
    assert errors.endswith("config.yaml: File too large\n")
    assert list(tmp_path.iterdir()) == []


def test_init_writes_where_a_link_leads(capsys, tmp_path):
    link, path = tmp_path / "link.yaml", tmp_path / "config.yaml"
    path.write_text("old")
    link.symlink_to(path)
    assert run(capsys, "init", link, "--overwrite")[0] == 0
    assert link.is_symlink()
    assert path.read_text().endswith(run(capsys, "init")[1])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("znnpy pr", ["predict", "profile"]),
        ("znnpy train --thr", ["--threads"]),
        ("znnpy segment p.h5 --method w", ["watershed"]),
    ],
)
def test_the_shell_completes(capsys, monkeypatch, words, expected):
    monkeypatch.setenv("_ZNNPY_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert run(capsys)[1].split() == expected


def test_help_breaks_lines_where_the_terminal_ends(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for command in ("train", "predict", "check", "profile", "view"):
        text = run(capsys, command, "--help")[1]
        about = text[text.index("Usage") : text.index("─ Arguments")].splitlines()[1:]
        lines = [line.strip() for line in about if len(line.split()) > 1]
        assert all(line.endswith(".") for line in lines if len(line) < 150), (command, lines)


def test_schema_is_json(capsys):
    assert "network" in json.loads(run(capsys, "schema")[1])["properties"]


def test_check_without_volumes(capsys, tmp_path):
    path = tmp_path / "config.yaml"
    run(capsys, "init", path)
    conv = ["--set", "training.conv=direct"]
    code, out, _ = run(capsys, "check", path, "--json", *conv)
    found = json.loads(out)
    assert code == 0
    assert found["edges"][0]["algorithms"] == dict.fromkeys(
        ("forward", "gradient", "weight"), "direct"
    )
    assert found["memory_bytes"] == sum(found["memory_uses"].values()) > 1000
    output = YAML(typ="safe").load(path)["training"]["output_shape"]
    assert set(map(tuple, found["outputs"].values())) == {tuple(output)}
    code, out, _ = run(capsys, "check", path, *conv)
    assert code == 0
    for word in (
        "receptive field",
        "peak memory",
        "at the peak",
        "gradients",
        "time per update",
        "sparsity",
        "conv1",
    ):
        assert word in out


def test_check_says_what_is_made_again_to_fit_and_what_that_costs(capsys, tmp_path):
    path = tmp_path / "config.yaml"
    run(capsys, "init", path)
    conv = "{conv: {channels: 16, size: 3, function: elu, norm: batch}}"
    options = ["--threads", "1", "--set", "training.conv=direct"]
    options += [
        "--set",
        f"network.layers=[{conv}, {conv}, {conv}, {{conv: {{channels: 1, size: 1}}}}]",
    ]
    plenty = json.loads(run(capsys, "check", path, "--json", *options)[1])
    limit = ["--max-memory", f"{plenty['memory_bytes'] * 0.95:.0f}"]
    code, out, _ = run(capsys, "check", path, "--json", *options, *limit)
    found = json.loads(out)
    assert code == 0
    assert found["memory_bytes"] < found["memory_kept_bytes"] == plenty["memory_bytes"]
    assert found["work_seconds"] == plenty["work_seconds"] + found["again_seconds"]
    assert found["again_seconds"] > plenty["again_seconds"] == 0
    assert "more work; the same bits" in run(capsys, "check", path, *options, *limit)[1]


def test_memory_limit_is_refused_with_sizes(capsys, tmp_path):
    path = tmp_path / "config.yaml"
    run(capsys, "init", path)
    code, out, errors = run(
        capsys, "check", path, "--max-memory", "1kB", "--set", "training.conv=direct"
    )
    assert (code, out) == (1, "")
    assert "needs" in errors


@pytest.mark.parametrize(
    "words",
    [
        ["check", "missing.yaml"],
        ["train", "missing.yaml"],
        ["evaluate", "missing"],
        ["predict", "missing", "--input", "a.h5", "--output", "b.h5"],
        ["init", "missing/folder/config.yaml"],
    ],
)
def test_errors_are_one_line_and_no_traceback(capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    code, out, errors = run(capsys, *words)
    assert (code, out) == (1, "")
    assert errors.startswith("znnpy: ")
    assert "missing" in errors
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--verbose", "-v", "--debug"])
def test_verbose_shows_where_an_error_comes_from(tmp_path, option):
    with pytest.raises(ZnnpyError):
        main(["evaluate", str(tmp_path), option])


def test_verbose_shows_where_a_warning_comes_from(tmp_path, capsys, monkeypatch):
    warn = lambda: warnings.warn_explicit("it is late", UserWarning, "there.py", 7)  # noqa: E731
    monkeypatch.setattr(app, "refuse_little_memory", warn)
    assert run(capsys, "schema")[2] == "znnpy: warning: it is late\n"
    said = run(capsys, "schema", "--verbose")[2]
    assert said == "znnpy: warning: it is late (there.py:7)\n"


@pytest.mark.parametrize(
    "words", [["trian"], ["train"], ["train", "--no-such-option"], ["check", "a", "--threads", "0"]]
)
def test_wrong_usage_is_status_2(capsys, words):
    code, out, errors = run(capsys, *words)
    assert (code, out) == (2, "")
    assert "Usage" in errors


@pytest.mark.parametrize(
    "words", [["segment", "a", "--method", "watershd"], ["init", "--for", "watershd"]]
)
def test_a_wrong_choice_is_said_with_the_right_ones(capsys, words):
    code, _, errors = run(capsys, *words)
    assert code == 2
    assert f"Invalid value for '{words[-2]}': 'watershd' is not one of" in errors


@pytest.mark.parametrize(
    "command", ["predict", "segment", "view", "evaluate", "train", "profile", "check"]
)
def test_help_says_what_to_type(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "140")
    _, out, _ = run(capsys, command, "--help")
    lines = out.splitlines()
    types = re.compile(r"<(str|int|float|bool|path)( range)?>|list\[")
    assert not [line for line in lines if types.search(line)]


def test_seams_alone_have_a_number():
    assert spelled_out(["predict", "--verify-seams"])[1:] == ["--verify-seams", str(SEAMS)]
    assert spelled_out(["--verify-seams", "--threads", "2"])[1:] == [str(SEAMS), "--threads", "2"]
    assert spelled_out(["--verify-seams", "3", "a"]) == ["--verify-seams", "3", "a"]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["nonsense"], 2)])
def test_a_process_ends_with_its_code_and_what_was_to_be_done_at_exit(words, code):
    script = "import atexit; atexit.register(print, 'last'); from znnpy.cli import main; main()"
    command = [sys.executable, "-c", script, *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert ended.stdout.endswith("last\n")
