"""Scores in the end: what is opened for them, and how much memory may be taken."""

import h5py
import pytest
from small_run import short

from znnpy.cli.evaluate import _sections
from znnpy.config.models import Config
from znnpy.data import opening, process_memory
from znnpy.data.config_volumes import open_scene
from znnpy.data.process_memory import available, share_memory, take
from znnpy.errors import ConfigError, VolumeError
from znnpy.evaluation.scores import Objects
from znnpy.evaluation.tuning import LEVELS
from znnpy.evaluation.volume import DEFAULT, evaluate, tuned_thresholds
from znnpy.train import final_evaluation, session
from znnpy.train.final_evaluation import evaluate_run, held_out, is_scored, write_result
from znnpy.train.progress import Quiet
from znnpy.train.start import read_run

LABELLED = {"image": "a.h5", "labels": "b.h5"}


def test_memory_is_not_divided_any_more_when_all_is_trained(tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(process_memory, "_part", None)
    monkeypatch.setattr(session, "share_host", lambda *_: share_memory(4, 1 << 30))
    monkeypatch.setattr(session, "evaluate_run", lambda *_: found.append(available(1)) or [])
    session.train(short(tmp_path, tmp_path / "run"), reporter=Quiet())
    assert found == ["1 B are available"]


@pytest.mark.slow
def test_a_volume_that_ranks_had_in_parts_need_not_fit_into_one(tmp_path, monkeypatch):
    session.train(short(tmp_path, tmp_path / "run"), reporter=Quiet())
    with h5py.File(tmp_path / "data.h5", "a") as file:
        for name in ("raw", "labels"):
            file[f"part/{name}"] = file[name][:, :12]
        room = 2 * file["part/labels"].nbytes
    monkeypatch.setattr(opening, "available_memory", lambda: room)
    part = "{image: data.h5:part/raw, labels: data.h5:part/labels}"
    part = part.replace("data.h5", str(tmp_path / "data.h5"))
    saved = read_run(tmp_path / "run", Quiet(), (f"data.test=[{part}]", "data.in_memory=true"))
    assert len(evaluate_run(saved, held_out(saved.config))) == 1
    with pytest.raises(VolumeError, match="but only"):
        evaluate_run(saved, saved.config.data.train)


def test_scores_are_those_of_these_weights_on_these_volumes(tmp_path):
    """Else the run is scored again."""
    sections = held_out(short(tmp_path, tmp_path / "run"))
    assert not is_scored(tmp_path, 4, sections)
    write_result(tmp_path, 4, sections, [])
    assert is_scored(tmp_path, 4, sections)
    assert not is_scored(tmp_path, 5, sections)
    assert not is_scored(tmp_path, 4, sections * 2)
    assert not is_scored(tmp_path, 4, ())
    (tmp_path / "result.json").write_text("{")
    assert not is_scored(tmp_path, 4, sections)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "neither data.test nor data.validation names a volume with labels; give --volume"),
        (
            {"test": []},
            r"data\.test is \[\]; give --volume .* or --set 'data\.test=\[{image: FILE, labels: FILE}\]'$",
        ),
        (
            {"test": [], "validation": [LABELLED]},
            r"data\.test is \[\]; .* or --set data\.test=null for those of data\.validation",
        ),
        ({"test": [{"image": "a.h5"}]}, r"no volume of data\.test has labels; give --volume"),
    ],
)
def test_why_there_is_nothing_to_evaluate_on(data, words):
    config = Config.model_validate(
        {
            "network": {"layers": [{"conv": {"channels": 1, "size": 3}}]},
            "data": data,
            "training": {"output_shape": 4},
        }
    )
    with pytest.raises(ConfigError, match=f"nothing to evaluate on: {words}"):
        _sections(config, None, None, None)


def test_what_is_opened_to_see_whether_it_can_be_is_not_counted_for_long(tmp_path, monkeypatch):
    def opened(*words):
        take(1 << 38)
        return open_scene(*words)

    def made(*words, **keys):
        found.append(process_memory._part.taken)
        return training_model(*words, **keys)

    found, open_scene, training_model = [], session.open_scene, session.training_model
    monkeypatch.setattr(process_memory, "_part", None)
    monkeypatch.setattr(session, "share_host", lambda *_: share_memory(2, 1 << 40))
    monkeypatch.setattr(session, "open_scene", opened)
    monkeypatch.setattr(session, "training_model", made)
    config = short(tmp_path, tmp_path / "run")
    assert held_out(config)
    session.train(config, reporter=Quiet())
    assert found[0] < 1 << 38


def test_the_threshold_of_objects_comes_from_validation(tmp_path, monkeypatch):
    session.train(short(tmp_path, tmp_path / "run"), reporter=Quiet())
    own, asked = read_run(tmp_path / "run", Quiet()), []

    def tuned(weights, scene, objects):
        asked.append(scene.reference.extent)
        return {"output": 0.35}

    monkeypatch.setattr(final_evaluation, "tuned_thresholds", tuned)
    image = f"{{image: {tmp_path}/data.h5:raw, labels: {tmp_path}/data.h5:labels, slices: "
    settings = f"data.test=[{image}[0, 14]}}]", f"data.validation=[{image}[5, 20]}}]"
    saved = read_run(tmp_path / "run", Quiet(), settings)

    def threshold(sections, objects=DEFAULT):
        return evaluate_run(saved, sections, objects)[0].scores["network"].threshold

    assert threshold(held_out(saved.config)) == 0.35
    assert asked == [(15, 25, 25)]
    assert threshold(held_out(saved.config), Objects(threshold=0.6)) == 0.6
    assert threshold(saved.config.data.validation) == 0.5, "it is tuned on what it scores"
    assert len(asked) == 1
    assert evaluate_run(own, held_out(own.config))[0].scores["network"].threshold == 0.5


def test_tuned_thresholds_are_the_best_of_the_objects(tmp_path):
    session.train(short(tmp_path, tmp_path / "run"), reporter=Quiet())
    saved = read_run(tmp_path / "run", Quiet())
    scene = open_scene(saved.config.data.train[0], saved.config.data, saved.network)
    (level,) = tuned_thresholds(saved.weights, scene).values()
    scores = {
        each: evaluate(saved.weights, scene, None, Objects(each))[0].scores["network"].cremi_score
        for each in (*LEVELS, level)
    }
    scene.close()
    assert scores[level] == min(scores.values())
