import numpy as np
import pytest

from znnpy.errors import RunError
from znnpy.train import checkpoint as checkpoints
from znnpy.train.checkpoint import Checkpoint


def make(iteration):
    rng = np.random.default_rng(iteration)
    return Checkpoint(
        iteration=iteration,
        parameters={
            "a/b": rng.random((2, 1, 3, 3, 3), np.float32),
            "file": np.zeros(2, np.float32),
        },
        optimizer_state={"a/b": rng.random(5, np.float32)},
        learning_rate=0.1 / 3,
        seed=2**63 - 1,
        next_sample=iteration * 4,
    )


def assert_same(left, right):
    for group in ("parameters", "optimizer_state"):
        one, other = getattr(left, group), getattr(right, group)
        assert list(one) == list(other)
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)
    for name in ("iteration", "learning_rate", "seed", "next_sample"):
        assert getattr(left, name) == getattr(right, name)


def test_round_trip_is_bitwise(tmp_path):
    checkpoints.save(tmp_path, make(7), keep=1)
    assert_same(checkpoints.newest(tmp_path, pytest.fail), make(7))


def test_keeps_the_newest(tmp_path):
    for iteration in (1, 20, 300, 4000):
        checkpoints.save(tmp_path, make(iteration), keep=2)
    assert [checkpoints.load(path).iteration for path in checkpoints.listed(tmp_path)] == [
        4000,
        300,
    ]


def damage_cut(data):
    return data[: len(data) // 2]


def damage_flip(data):
    middle = len(data) // 3
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, lambda _: b"", lambda _: b"x" * 100])
def test_damaged_newest_falls_back_with_a_warning(tmp_path, damage):
    checkpoints.save(tmp_path, make(1), keep=2)
    path = checkpoints.save(tmp_path, make(2), keep=2)
    path.write_bytes(damage(path.read_bytes()))
    warnings = []
    assert_same(checkpoints.newest(tmp_path, warnings.append), make(1))
    assert len(warnings) == 1
    assert "damaged" in warnings[0]
    assert path.name in warnings[0]


def test_every_flipped_byte_is_noticed_or_harmless(tmp_path):
    path = checkpoints.save(tmp_path, make(2), keep=2)
    data = path.read_bytes()
    for at in range(0, len(data), 37):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        try:
            found = checkpoints.load(path)
        except RunError:
            continue
        assert_same(found, make(2))


def test_pickles_are_refused(tmp_path):
    path = checkpoints.path_of(tmp_path, 3)
    with path.open("wb") as file:
        np.savez(file, meta=np.array([{}], dtype=object))
    with pytest.raises(RunError, match="damaged"):
        checkpoints.load(path)


def test_names_and_shapes_must_fit():
    have = {"a": np.zeros(3), "x": np.zeros(1)}
    want = {"a": np.zeros(4), "b": np.zeros(1)}
    with pytest.raises(RunError, match=r"'b' is missing.*'x' is not in.*'a' has shape \(3,\)"):
        checkpoints.check_fits(have, want, "checkpoint 7")
    checkpoints.check_fits(want, want, "checkpoint 7")
