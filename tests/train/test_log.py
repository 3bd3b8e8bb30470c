import pytest

from znnpy.train.log import RunLog, drop_after, read


def test_resume_drops_what_comes_after_the_checkpoint_and_half_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    with RunLog(path) as log:
        for iteration in (10, 20, 30):
            log.write({"iteration": iteration, "loss": 1 / iteration})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"iteration": 40, "lo')
    assert [record["iteration"] for record in read(path)] == [10, 20, 30]
    assert [record["iteration"] for record in drop_after(path, 20)] == [10, 20]
    with RunLog(path) as log:
        log.write({"iteration": 30, "loss": 1 / 30})
    assert path.read_bytes() == whole


def test_not_a_number_is_no_json(tmp_path):
    with RunLog(tmp_path / "log.jsonl") as log, pytest.raises(ValueError, match="JSON"):
        log.write({"iteration": 1, "loss": float("nan")})
