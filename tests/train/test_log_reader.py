"""A damaged log loses what is damaged and nothing else, and never keeps a run from going on."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from children import forked

from znnpy.errors import RunError
from znnpy.train.log import LINE, RunLog, drop_after, up_to

LINES = [
    json.dumps(
        {"iteration": n, ("loss" if n % 10 else "validation"): 1 / n if n % 10 else {}, "time": 0.5}
    )
    for n in range(1, 41)
]
WHOLE = "".join(f"{line}\n" for line in LINES).encode()
KEPT = WHOLE[: WHOLE.find(b'{"iteration": 31')]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "log.jsonl"
    found.write_bytes(WHOLE)
    return found


def asides(path: Path) -> list[Path]:
    return sorted(path.parent.glob("log.jsonl.damaged-*"))


def iterations(path: Path, until: int) -> list[int]:
    return [record["iteration"] for record in up_to(path, until)]


def test_resume_drops_what_comes_after_the_checkpoint_and_half_lines(path: Path) -> None:
    path.write_bytes(WHOLE[:-5])
    assert iterations(path, 30) == list(range(1, 31))
    before = path.stat().st_ino
    assert drop_after(path, 30) == ""
    assert path.read_bytes() == KEPT
    assert path.stat().st_ino == before  # it is cut, not written again
    with RunLog(path, lambda: 0.5) as log:
        for line in LINES[30:]:
            log.write(json.loads(line))
    assert path.read_bytes() == WHOLE
    assert not asides(path)


def test_a_log_that_is_whole_is_not_touched(path: Path) -> None:
    before = path.stat()
    assert drop_after(path, 40) == ""
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_no_log_is_no_damage(tmp_path: Path) -> None:
    assert drop_after(tmp_path / "log.jsonl", 3) == ""
    assert list(up_to(tmp_path / "log.jsonl", 3)) == []
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(RunError, match=r"log\.jsonl: Is a directory"):
        drop_after(tmp_path / "log.jsonl", 3)
    with pytest.raises(RunError, match=r"cannot read .*log\.jsonl: Is a directory"):
        list(up_to(tmp_path / "log.jsonl", 3))


@pytest.mark.quick(16)
@pytest.mark.parametrize(
    "line",
    [
        b'{"iteration": 12, "loss": 0.0\xff}',
        b'{"iteration": 12, "loss": 0.5',
        b'{"loss": 0.5}',
        b'{"iteration": "12", "loss": 0.5}',
        b'{"iteration": 12.0, "loss": 0.5}',
        b'{"iteration": true, "loss": 0.5}',
        b'{"iteration": -1, "loss": 0.5}',
        b'{"iteration": 12, "loss": NaN}',
        b'{"iteration": 12, "loss": 1e999}',
        b'{"iteration": 12, "loss": [1]}',
        b'{"iteration": 12, "validation": {"loss": "x"}}',
        b'{"iteration": 92, "loss": 0.5}',  # one digit: those after it go back
        b'{"iteration": 22, "loss": 0.5}',
        b'{"iteration": 2, "loss": 0.5}',
        b'{"iteration": %s}' % (b"1" * 5000),
        b"[12]",
        b"12",
        b"",
        b"\0" * 300,
        b"[" * (LINE - 9),
        b"x" * (3 * LINE),
    ],
)
@pytest.mark.parametrize("number", [4, 11, 29])
def test_a_damaged_line_is_set_aside_and_all_others_stay(
    path: Path, line: bytes, number: int
) -> None:
    lines = [text.encode() for text in LINES]
    lines[number] = line
    path.write_bytes(b"\n".join(lines) + b"\n")
    said = drop_after(path, 30)
    wanted = [text.encode() + b"\n" for n, text in enumerate(LINES[:30]) if n != number]
    (aside,) = asides(path)
    assert said.startswith(f"1 line of {path} cannot be read; set aside in {aside.name},")
    assert aside.read_bytes() == line + b"\n"
    assert path.read_bytes() == b"".join(wanted)
    assert drop_after(path, 30) == ""  # said once


def test_the_last_line_of_what_was_saved_is_not_lost(path: Path) -> None:
    path.write_bytes(WHOLE[:-1])
    assert drop_after(path, 40).startswith(f"1 line of {path} cannot be read")
    assert asides(path)[0].read_bytes() == LINES[-1].encode()
    assert path.read_bytes() == WHOLE[: -len(LINES[-1]) - 1]


def test_a_validation_beside_a_damaged_number_is_no_damage(path: Path) -> None:
    """Two records have its iteration; the number between them is what does not fit."""
    damaged, validation = '{"iteration": 29, "loss": 0.5}', '{"iteration": 20, "validation": {}}'
    lines = [*LINES[:20], damaged, validation, *LINES[20:]]
    path.write_text("".join(f"{line}\n" for line in lines))
    drop_after(path, 40)
    assert path.read_text().splitlines() == [*LINES[:20], validation, *LINES[20:]]
    assert asides(path)[0].read_text() == f"{damaged}\n"


def test_a_record_of_many_scores_is_no_damage(path: Path) -> None:
    scores = {f"output {n}": n / 7 for n in range(1000)}
    line = json.dumps({"iteration": 40, "validation": scores})
    path.write_bytes(WHOLE + line.encode() + b"\n")
    assert LINE / 4 < len(line) < LINE
    assert drop_after(path, 40) == ""
    assert iterations(path, 40)[-2:] == [40, 40]


def test_a_bad_byte_in_the_middle_keeps_a_run_s_log(path: Path) -> None:
    place = len(WHOLE) // 3
    path.write_bytes(WHOLE[:place] + b"\xf0" + WHOLE[place + 1 :])
    assert len(iterations(path, 40)) == 39
    drop_after(path, 40)
    assert len(path.read_bytes().splitlines()) == 39


@pytest.mark.slow
@pytest.mark.parametrize("line", [b"x", b'{"iteration": 1, "loss": 0.5}\n', b"\n"])
def test_large_logs_take_little_memory(path: Path, line: bytes) -> None:
    """64 MiB in one line, many records, many empty lines; within 32 MiB."""
    size = 64 << 20 if line == b"x" else 1 << 17
    path.write_bytes(line * (size // len(line)) + b"\n" + WHOLE)

    def work(_: int) -> None:
        before = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (before + (32 << 20),) * 2)
        drop_after(path, 30)

    assert forked(work)[0] == 0
    assert path.read_bytes().endswith(KEPT[-200:])
