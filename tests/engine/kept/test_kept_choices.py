"""Choices that took long are found by the next process, for what they were made for alone."""

import errno
import os
from dataclasses import replace

import pytest
from small_models import small

from znnpy.engine.kept import choices, folder, keys
from znnpy.engine.kept.keys import Choosing


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder of its own, where choices are kept that took no time."""
    monkeypatch.setattr(folder, "home", lambda: tmp_path / "graphs")
    monkeypatch.setattr(choices, "LEAST_SECONDS", 0.0)
    (tmp_path / "graphs").mkdir(mode=0o700)
    return tmp_path / "graphs"


@pytest.fixture(scope="module")
def model():
    with small() as made:
        yield made


@pytest.fixture
def choice(model):
    return Choosing(model.network, model.geometry, 8, (8, 4, 2, 1), 1, "auto")


class Choose:
    """Chooses a size, and counts how often it is asked."""

    def __init__(self, size):
        self.size, self.asked = size, 0

    def __call__(self):
        self.asked += 1
        return self.size


def test_what_was_chosen_first_stays(kept, model, choice):
    first, second = Choose(4), Choose(2)
    found = [choices.kept_choice(choice, model._settings, it) for it in (first, second, second)]
    assert found == [4, 4, 4]
    assert (first.asked, second.asked) == (1, 0)


OTHERS = (
    {"batch": 16},
    {"sizes": (4, 2, 1)},
    {"ranks": 2},
    {"conv": "direct"},
    {"pinned": {"conv1": {"forward": "direct"}}},
)


@pytest.mark.parametrize("other", OTHERS)
def test_other_questions_are_asked_anew(kept, model, choice, other):
    settings = model._settings
    choices.kept_choice(choice, settings, Choose(4))
    again = Choose(2)
    assert choices.kept_choice(replace(choice, **other), settings, again) == 2
    assert choices.kept_choice(replace(choice, **other), settings, Choose(1)) == 2
    assert again.asked == 1
    assert choices.kept_choice(choice, settings, Choose(1)) == 4


@pytest.mark.parametrize(
    "other", [{"threads": 16}, {"max_memory": 1 << 30}, {"policy": "fifo"}, {"clip_norm": 1.0}]
)
def test_so_they_are_for_other_settings(kept, model, choice, other):
    choices.kept_choice(choice, model._settings, Choose(4))
    settings = replace(model._settings, **other)
    assert choices.kept_choice(choice, settings, Choose(2)) == 2


def test_and_on_a_machine_of_other_memory(kept, model, choice, monkeypatch):
    choices.kept_choice(choice, model._settings, Choose(4))
    monkeypatch.setattr(keys, "room_for_replicas", lambda settings: 1 << 20)
    assert choices.kept_choice(choice, model._settings, Choose(2)) == 2


def test_and_on_a_machine_that_has_less_than_the_limit(kept, model, choice, monkeypatch):
    settings = replace(model._settings, max_memory=1 << 30)
    monkeypatch.setattr(keys, "whole_memory", lambda: 1 << 34)
    choices.kept_choice(choice, settings, Choose(4))
    monkeypatch.setattr(keys, "whole_memory", lambda: 1 << 35)
    assert choices.kept_choice(choice, settings, Choose(2)) == 4
    monkeypatch.setattr(keys, "whole_memory", lambda: 1 << 29)
    assert choices.kept_choice(choice, settings, Choose(2)) == 2


def test_and_on_another_machine(kept, model, choice, monkeypatch):
    choices.kept_choice(choice, model._settings, Choose(4))
    monkeypatch.setattr(keys, "target_features", lambda: "others")
    assert choices.kept_choice(choice, model._settings, Choose(2)) == 2


@pytest.mark.parametrize("damage", [lambda it: it[:40], lambda it: it.replace(b"4", b"2")])
def test_a_damaged_file_is_made_again(kept, model, choice, damage):
    choices.kept_choice(choice, model._settings, Choose(4))
    (file,) = kept.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    again = Choose(4)
    assert choices.kept_choice(choice, model._settings, again) == 4
    assert again.asked == 1
    assert file.read_bytes() == whole


def test_what_is_soon_chosen_is_not_kept(kept, model, choice, monkeypatch):
    monkeypatch.setattr(choices, "LEAST_SECONDS", 60.0)
    assert choices.kept_choice(choice, model._settings, Choose(4)) == 4
    assert not [*kept.iterdir()]


def test_a_full_disk_is_told(kept, model, choice, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folder.Path, "replace", full)
    with pytest.warns(UserWarning, match="not kept: No space left"):
        assert choices.kept_choice(choice, model._settings, Choose(4)) == 4
    assert not [*kept.iterdir()]
