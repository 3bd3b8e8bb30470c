"""However a command is started and stopped, it ends with one line and no traceback."""

from __future__ import annotations

import io
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from called import status_of
from children import forked

from znnpy.cli import app, main, predict
from znnpy.cli.preconditions import LEAST, LEAST_EACH, refuse_little_memory
from znnpy.config import template
from znnpy.distributed import failure_detector
from znnpy.errors import RunError, ZnnpyError, told
from znnpy.scheduler.core_count import available_cores

START = "from znnpy.cli import main; main()"
COMMAND = Path(__file__).parents[2] / "scripts" / "znnpy"
# Writes a dot once signals are handled.
TELLING = """
import os, _signal
real = _signal.signal
def told(*given):
    _signal.signal = real
    real(*given)
    os.write(1, b".")
_signal.signal = told
"""
TIMES = int(os.environ.get("ZNNPY_INTERRUPTS", "8"))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(template())
    return path


def test_signals_are_handled_before_anything_is_loaded() -> None:
    """Python's own start cannot be told what to do; all that comes before `main` beside are these."""
    text = COMMAND.read_text()
    assert text.startswith("#!python\n")  # for which installers put theirs
    assert COMMAND.stat().st_mode & 0o111 == 0o111
    code = "before = set(sys.modules); exec(sys.argv[1], {'__name__': ''}); print(*set(sys.modules) - before)"
    line = [sys.executable, "-c", f"import sys; {code}", text]
    done = subprocess.run(line, capture_output=True, text=True)
    assert sorted(done.stdout.split()) == ["znnpy", "znnpy.cli"]


@pytest.mark.slow
def test_ctrl_c_while_it_starts(config: Path) -> None:
    ended = []
    for number in range(TIMES):
        command = ("check", "train", "profile", "evaluate")[number % 4]
        words = [sys.executable, "-c", TELLING + START, command, str(config)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.read(1) == b"."
            time.sleep(number * 0.3 / TIMES)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=600)
        assert b"Traceback" not in errors, errors.decode()
        assert b"Aborted" not in errors
        ended.append(process.returncode)
        assert process.returncode in (0, 1, 130)  # it may have been done before
    assert ended.count(130) > TIMES // 2


CLOSED = """
import os
from znnpy.cli import main
try:
    main(["version"])
except SystemExit as end:
    null = os.stat(os.devnull).st_rdev
    os._exit(end.code or any(os.fstat(number).st_rdev != null for number in range(3)))
"""


def test_streams_that_were_closed_give_their_numbers_to_no_file() -> None:
    """What is written to these would be written into it."""
    line = ["sh", "-c", '"$0" -c "$1" <&- >&- 2>&-', sys.executable, CLOSED]
    assert subprocess.run(line).returncode == 0


def test_a_current_folder_that_was_removed(
    config: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (gone := config.parent / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert status_of("check", config, "--set", "run.directory=run") == 1
    assert "the current folder was removed" in capfd.readouterr().err


@pytest.mark.slow
def test_too_few_addresses(config: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (LEAST // 2, LEAST // 2))

    words = [sys.executable, "-c", START, "predict", "run", "--input", "a.h5", "--output", "b.h5"]
    done = subprocess.run(words, capture_output=True, text=True, preexec_fn=limit, timeout=600)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "ulimit -v" in done.stderr


def test_each_core_needs_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = LEAST + LEAST_EACH * available_cores()
    for allowed in (needed, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, allowed=allowed: (allowed, allowed))
        refuse_little_memory()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (needed - 1, needed))
    with pytest.raises(ZnnpyError, match=r"of addresses \(ulimit -v\); it needs at least"):
        refuse_little_memory()


def test_names_that_are_no_text(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["check", "\udcff\x1b[2J.yaml"],
        ["check", "config.yaml", "--set", 'network.name="\\ud800"'],
        ["check", "config.yaml", "--set", "data.train=[{image: \udcfe.h5}]"],
        ["check", "config.yaml", "--set", "\x1b]0;x\x07=1"],
        ["view", "\udcff.h5"],
    ):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 1
        errors = capfd.readouterr().err
        assert errors.startswith("znnpy: ")
        assert "internal error" not in errors
        assert errors.rstrip("\n").isprintable()


@pytest.mark.parametrize("text", ['a: "\\uD800"', '"\\uDFFF": 1', 'network: {name: "x\\uDC00"}'])
def test_half_a_character(config: Path, capfd: pytest.CaptureFixture[str], text: str) -> None:
    config.write_text(text)
    with pytest.raises(SystemExit):
        main(["check", str(config)])
    assert "half of a character" in capfd.readouterr().err


def test_an_unforeseen_error_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(predict, "spelled_out", lambda words: words)
    monkeypatch.setattr(app, "_commands", fail)
    with pytest.raises(SystemExit) as end:
        main(["check"])
    assert end.value.code == 1
    assert capsys.readouterr().err.startswith("znnpy: internal error (KeyError: 'surprise')")
    with pytest.raises(KeyError):
        main(["check", "--debug"])


@pytest.mark.parametrize("tell", [app._complain, failure_detector.say])
def test_a_line_is_written_at_once(
    monkeypatch: pytest.MonkeyPatch, tell: Callable[[str], None]
) -> None:
    """With its end, or another rank's words may stand between where nothing is buffered."""

    class Written(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    written: list[str] = []
    monkeypatch.setattr(sys, "stderr", Written())
    tell("labels are odd")
    assert written == ["znnpy: labels are odd\n"]


CONV, LAST = "conv: {channels: 8, size: 3, function: relu}", "conv: {channels: 1, size: 1}"
VAST = {
    "output of 4096^3": ([CONV, "max_filter: 2", CONV], "output_shape: 4096"),
    "output of 300^3": ([CONV, "max_filter: 2", CONV], "output_shape: 300"),
    "filters of 1000": (["max_filter: 1000", CONV], "output_shape: 8"),
    "a batch of 65,536": ([CONV] * 3, "output_shape: 32, batch: 65536"),
    "100 layers": ([CONV] * 100, "output_shape: 8"),
    "400 layers": (["conv: {channels: 2, size: 1}"] * 400, "output_shape: 8"),
    "4,000 layers": ([CONV] * 4000, "output_shape: 8"),
}


def kib(field: str) -> int:
    """What this process says of its memory."""
    (line,) = re.findall(field + r":\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(line)


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "training"), VAST.values(), ids=VAST)
def test_check_is_bounded(config: Path, layers: list[str], training: str) -> None:
    """These took minutes; the limits are far above the seconds and MB that they take."""
    rows = "".join(f"    - {layer}\n" for layer in [*layers, LAST])
    config.write_text(f"network:\n  layers:\n{rows}training: {{{training}}}\n")

    def check(pipe: int) -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        sys.stdout = sys.stderr = open(pipe, "w", closefd=False)  # noqa: SIM115
        before = kib("VmRSS")
        code = status_of("check", config)
        print(f"{code} {kib('VmHWM') - before}", flush=True)

    status, written = forked(check)
    said = written.decode()
    assert status == 0, said
    code, grown = map(int, said.splitlines()[-1].split())
    assert code in (0, 1), said
    assert "Traceback" not in said
    assert "internal error" not in said
    if code == 0:
        assert grown < 350_000
        assert "peak memory" in said


def test_what_nobody_expected_is_called_internal_on_all_ranks() -> None:
    assert told(KeyError("norm1")) == (
        "internal error (KeyError: 'norm1'); --verbose shows where; please report it"
    )
    assert told(AssertionError()).startswith("internal error (AssertionError);")
    assert told(RunError("a.h5 is damaged")) == "a.h5 is damaged"
    assert told(FileNotFoundError(2, "No such file", "a.h5")) == "a.h5: No such file"


def test_a_name_that_the_locale_has_no_letters_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a config in UTF-8 where LANG is C and Python's own way around that is off."""
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    error = UnicodeEncodeError("ascii", "süß/run", 1, 3, "ordinal not in range(128)")
    assert told(error).startswith("süß/run: no file has such a name where the locale has ascii")
    assert "PYTHONUTF8=1" in told(error)
    other = UnicodeEncodeError("latin-1", "süß", 1, 3, "ordinal not in range(128)")
    assert "internal error" in told(other)
