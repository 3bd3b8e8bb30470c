import re
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from rewriting import rewritten, with_array, with_meta

from znnpy.errors import RunError
from znnpy.file_arrays import FileArray
from znnpy.train import checkpoint as checkpoints
from znnpy.train import looking_ahead, npz_reader
from znnpy.train.checkpoint import Checkpoint, Contents
from znnpy.train.npz_reader import Kind


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


def contents(iteration=7):
    """What the checkpoints of `make` hold."""
    example = make(iteration)
    return Contents(
        *(
            {name: Kind(array.shape, array.dtype) for name, array in group.items()}
            for group in (example.parameters, example.optimizer_state)
        )
    )


def load(path):
    return checkpoints.load(path, contents())


def newest(folder, warn):
    return checkpoints.newest(folder, contents(), warn)


def assert_same(left, right):
    for group in ("parameters", "optimizer_state"):
        one, other = getattr(left, group), getattr(right, group)
        assert list(one) == list(other)
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)
    for name in ("iteration", "learning_rate", "seed", "next_sample"):
        assert getattr(left, name) == getattr(right, name)


def test_round_trip_is_bitwise(tmp_path):
    checkpoints.save(tmp_path, make(7), keep=1)
    assert_same(newest(tmp_path, pytest.fail), make(7))


def test_keeps_the_newest(tmp_path):
    for iteration in (1, 20, 300, 4000):
        checkpoints.save(tmp_path, make(iteration), keep=2)
    assert [load(path).iteration for path in checkpoints.listed(tmp_path)] == [
        4000,
        300,
    ]


def test_one_is_always_kept(tmp_path):
    for iteration in (1, 20):
        checkpoints.save(tmp_path, make(iteration), keep=0)
    assert [load(path).iteration for path in checkpoints.listed(tmp_path)] == [20]


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
    said = []
    assert_same(newest(tmp_path, said.append), make(1))
    told, taken = said
    assert "damaged" in told
    assert path.name in told
    assert taken == "weights of iteration 1 are taken"


def test_every_flipped_byte_is_noticed_or_harmless(tmp_path):
    path = checkpoints.save(tmp_path, make(2), keep=2)
    data = path.read_bytes()
    for at in range(0, len(data), 37):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        try:
            found = load(path)
        except RunError:
            continue
        assert_same(found, make(2))


LARGE = np.random.default_rng(0).random((30, 10, 3, 3, 3), np.float32)
SCANS = "data:\n  prepare:\n    spacing: 1\ntraining:\n  batch: 1\n"


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A checkpoint with an array that is large, and read in pieces."""
    monkeypatch.setattr(checkpoints, "LARGE", 8 << 10)
    monkeypatch.setattr(npz_reader, "_PIECE", 8 << 10)
    made = make(7)
    return checkpoints.save(
        tmp_path, replace(made, parameters=made.parameters | {"large": LARGE}), keep=1
    )


def of_large(path, *, in_file):
    kinds = contents().parameters | {"large": Kind(LARGE.shape, LARGE.dtype)}
    return checkpoints.load(path, replace(contents(), parameters=kinds, in_file=in_file)).parameters


def test_large_weights_stay_in_their_file(large):
    found = of_large(large, in_file=True)
    assert [isinstance(values, FileArray) for values in found.values()] == [False, False, True]
    assert (np.asarray(found["large"]) == LARGE).all()
    assert all((values == found[name]).all() for name, values in make(7).parameters.items())


def of_ahead(path, ahead):
    kinds = contents().parameters | {"large": Kind(LARGE.shape, LARGE.dtype)}
    wanted = replace(contents(), parameters=kinds, in_file=True, ahead=ahead)
    return checkpoints.load(path, wanted).parameters


@pytest.fixture
def run(large, tmp_path, monkeypatch):
    """A run whose newest checkpoint has an array that is large."""
    monkeypatch.setattr(looking_ahead, "LARGE", 8 << 10)
    folder = tmp_path / "run" / checkpoints.DIRECTORY
    folder.mkdir(parents=True)
    large.rename(folder / large.name)
    (folder.parent / checkpoints.RUN_CONFIG).write_text(SCANS)
    return folder.parent


def test_what_was_looked_through_ahead_is_not_read_again(run, monkeypatch):
    ahead = checkpoints.look_ahead(run, "latest")
    ahead._thread.join()
    looked = []
    read = npz_reader.Archive._read
    monkeypatch.setattr(
        npz_reader.Archive, "_read", lambda *given: looked.append(given[1]) or read(*given)
    )
    found = of_ahead(checkpoints.path_in(run, "latest"), ahead)
    assert "meta" in looked
    assert "parameters/large" not in looked
    assert (np.asarray(found["large"]) == LARGE).all()
    assert all((values == found[name]).all() for name, values in make(7).parameters.items())


def test_another_checkpoint_than_was_looked_at_ahead(run):
    ahead = checkpoints.look_ahead(run, 7)
    made = make(7)
    checkpoints.save_best(
        run / checkpoints.BEST, replace(made, parameters=made.parameters | {"large": LARGE + 1})
    )
    other = checkpoints.path_of(run / checkpoints.BEST, 7)
    assert (np.asarray(of_ahead(other, ahead)["large"]) == LARGE + 1).all()
    assert checkpoints.look_ahead(run, 8) is None
    assert checkpoints.look_ahead(run / "none", "latest") is None


@pytest.mark.parametrize(
    "text",
    [
        "data:\n  border: mirror\n",
        SCANS + "  ema: 0.9\n",
        "data:\n  border: mirror\nrun:\n  prepare: x\n",
        "# data:\n#   prepare: x\n",
    ],
)
def test_what_is_read_to_memory_is_not_looked_through_before(run, text):
    (run / checkpoints.RUN_CONFIG).write_text(text)
    assert checkpoints.look_ahead(run, "latest") is None


def test_keys_count_in_their_sections_alone(run):
    """As `dump` writes them, behind other keys and with the same key in another section."""
    text = "data:\n  train:\n    - {image: a.h5}\n  prepare:\n    crop: false\nrun:\n  ema: x\n"
    (run / checkpoints.RUN_CONFIG).write_text(text)
    assert checkpoints.look_ahead(run, "latest") is not None


def test_damage_that_is_found_ahead(run):
    path = checkpoints.path_in(run, "latest")
    data = bytearray(path.read_bytes())
    data[data.index(LARGE.tobytes()[:64]) + 4000] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunError, match=r"is damaged .*bad checksum of 'parameters/large'"):
        of_ahead(path, checkpoints.look_ahead(run, "latest"))


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("place", [0, 2048, 8099])
def test_all_of_them_is_looked_at(large, in_file, place):
    sound, data = large.read_bytes(), bytearray(large.read_bytes())
    data[data.index(LARGE.tobytes()) + 4 * place] ^= 1
    large.write_bytes(data)
    with pytest.raises(RunError, match="checksum"):
        of_large(large, in_file=in_file)
    for value in (np.nan, np.inf, -np.inf):
        values = LARGE.copy()
        values.flat[place] = value
        large.write_bytes(sound)
        rewritten(large, with_array("parameters/large", values))
        with pytest.raises(RunError, match="not finite"):
            of_large(large, in_file=in_file)


def test_pickles_are_refused(tmp_path):
    path = checkpoints.path_of(tmp_path, 3)
    with path.open("wb") as file:
        np.savez(file, meta=np.array([{}], dtype=object))
    with pytest.raises(RunError, match="damaged"):
        load(path)


def huge(members):
    """A header that claims terabytes, of a member that is as large as before."""
    name, data = next(m for m in members if m[0] == "parameters/file.npy")
    claimed = data.replace(b"'shape': (2,), }", b"'shape': (1000000000000,), }").replace(
        b" " * 11, b"", 1
    )
    return [(n, claimed if n == name else d) for n, d in members]


NAN = np.array([0, np.nan], np.float32)
FILE = "parameters/file"
FORGED = {
    "without an array": (lambda members: members[:-1], "optimizer_state/a/b' is missing"),
    "with another": (lambda m: [*m, ("parameters/x.npy", m[-1][1])], "'parameters/x' is not in"),
    "with one twice": (lambda members: [*members, members[-1]], "or there twice"),
    "with a text": (lambda members: [*members, ("readme.txt", b"hello")], "is no array"),
    "NaN": (with_array(FILE, NAN), "not finite"),
    "Inf in the state": (
        with_array("optimizer_state/a/b", np.full(5, np.inf, np.float32)),
        "not f",
    ),
    "float64": (with_array(FILE, np.zeros(2)), "'parameters/file' is of float64, not float32"),
    "integers": (with_array(FILE, np.zeros(2, np.int32)), "is of int32, not float32"),
    "swapped bytes": (with_array(FILE, np.zeros(2, ">f4")), "is of"),
    "another shape": (with_array(FILE, np.zeros(3, np.float32)), r"shape \(3,\), not \(2,\)"),
    "by column": (with_array("parameters/a/b", np.zeros((3, 2), np.float32).T), "no header"),
    "records": (with_array(FILE, np.zeros(2, [("a", "f4")])), "no header"),
    "objects": (with_array(FILE, np.array([{}, 1], object)), "no header"),
    "terabytes": (huge, "(shape|size)"),
    "no header": (lambda m: [(n, b"" if FILE in n else d) for n, d in m], "no header"),
    "more data": (lambda m: [(n, d + b"x" * (FILE in n)) for n, d in m], "another size"),
    "no numbers": (with_array("meta", np.array("[]")), "no JSON object"),
    "numbers as bytes": (with_array("meta", np.array(b"{}")), "is no text"),
    "half an iteration": (with_meta(iteration=7.5), "iteration is '7.5', not a whole number"),
    "iteration as text": (with_meta(iteration="7"), "not a whole number"),
    "another iteration": (with_meta(iteration=8), "of iteration 8, which its name"),
    "a truth for a seed": (with_meta(seed=True), "seed is 'True'"),
    "no sample": (with_meta(next_sample=None), "next_sample is 'None'"),
    "samples before the first": (with_meta(next_sample=-1), "next_sample is '-1'"),
    "no rate": (with_meta(learning_rate="fast"), "learning_rate is 'fast'"),
    "endless rate": (with_meta(learning_rate=float("inf")), "learning_rate is 'inf'"),
    "a rate that goes up": (with_meta(learning_rate=-1.0), "learning_rate is '-1.0', not a finite"),
    "NaN for a rate": (
        with_meta(learning_rate=float("nan")),
        "learning_rate is 'nan', not a finite",
    ),
    "a number for a network": (with_meta(network=7), "network is '7', not a text"),
    "another version": (with_meta(format=2), "another version"),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_is_no_checkpoint_of_this_network_is_refused(tmp_path, name):
    change, words = FORGED[name]
    checkpoints.save(tmp_path, make(6), keep=2)
    path = checkpoints.save(tmp_path, make(7), keep=2)
    rewritten(path, lambda members: members)
    assert_same(load(path), make(7))
    rewritten(path, change)
    said = []
    assert_same(newest(tmp_path, said.append), make(6))
    line, _ = said  # and which is taken
    assert re.search(words, line), line
    assert "\n" not in line
    assert len(line) < 600


def test_bombs_are_not_inflated(tmp_path):
    path = checkpoints.path_of(tmp_path, 7)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("meta.npy", b"\0" * (64 << 20))
    assert path.stat().st_size < 100_000
    with pytest.raises(RunError, match="not stored plain"):
        load(path)


@pytest.mark.parametrize("what", ["folder", "none"])
def test_no_file_is_one_line(tmp_path, what):
    path = checkpoints.path_of(tmp_path, 7)
    if what == "folder":
        path.mkdir()
    with pytest.raises(RunError, match=r"is damaged \(not a file"):
        load(path)
