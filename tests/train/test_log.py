import time

import pytest

from znnpy.train.log import RunLog, up_to


def test_not_a_number_is_no_json(tmp_path):
    with RunLog(tmp_path / "log.jsonl") as log, pytest.raises(ValueError, match="JSON"):
        log.write({"iteration": 1, "loss": float("nan")})


def test_a_line_that_was_cut_short_is_ended(tmp_path):
    path = tmp_path / "timings.jsonl"
    path.write_bytes(b'{"iteration": 1}\n{"itera')
    with RunLog(path, lambda: 3.0625) as log:
        log.write({"iteration": 2})
    assert path.read_bytes() == b'{"iteration": 1}\n{"itera\n{"iteration": 2, "time": 3.062}\n'


def test_every_record_has_the_time(tmp_path):
    before = time.time()
    with RunLog(tmp_path / "log.jsonl") as log:
        log.write({"iteration": 1})
    (record,) = up_to(tmp_path / "log.jsonl", 1)
    assert before - 1 < record["time"] < time.time() + 1
