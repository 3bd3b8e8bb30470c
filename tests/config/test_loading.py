"""Overrides, numbers, paths, shorthand."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.config import Config, MalformedConfigError, config_from, load_both, load_config
from znnpy.config.models import AffinityTarget, CosineSchedule
from znnpy.config.reader import plain_scalar, read_file, read_text
from znnpy.fields import UNITS
from znnpy.learning.optimizers import Adam, Sgd

BASE: dict[str, Any] = {
    "network": {"layers": [{"conv": {"channels": 2, "size": 3}}]},
    "training": {"output_shape": 8},
}


def loaded(*overrides: str) -> Config:
    return config_from(BASE, overrides=overrides)


def test_defaults() -> None:
    config = loaded()
    assert config.training.optimizer == Sgd(kind="sgd")
    assert config.data.in_memory == "auto"
    assert config.run.threads is None


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_any_positive_float_survives_an_override(value: float) -> None:
    assert loaded(f"training.learning_rate={value!r}").training.learning_rate == value


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_any_seed_survives_an_override(value: int) -> None:
    assert loaded(f"training.seed={value}").training.seed == value


@given(st.integers(1, 10**9), st.integers(-9, 9), st.sampled_from("eE"))
def test_exponents_without_a_dot_are_numbers(digits: int, power: int, letter: str) -> None:
    number = plain_scalar(f"{digits}{letter}{power}")
    assert isinstance(number, int | float)
    assert math.isclose(number, digits * 10.0**power)


@pytest.mark.slow
@given(st.text())
def test_a_scalar_is_itself_or_a_number_or_refused(text: str) -> None:
    try:
        value = plain_scalar(text)
    except ValueError:
        return
    assert value == text or not isinstance(value, str)
    assert not isinstance(value, float) or math.isfinite(value)


@pytest.mark.slow
@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        document = read_text(text, "x.yaml")
    except MalformedConfigError:
        return
    assert document.file == "x.yaml"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1e-3", 1e-3), ("1e4", 10000), ("0x10", 16), ("0o17", 15), ("1_000", 1000)],
        *[("~", None), ("True", True), ("yes", "yes"), ("012", 12), ("1.", 1.0), ("e5", "e5")],
    ],
)
def test_plain_scalars(text: str, value: object) -> None:
    found = plain_scalar(text)
    assert found == value
    assert type(found) is type(value)


def test_overrides_of_lists_sections_and_items() -> None:
    config = loaded(
        "training.output_shape=[1, 32, 32]",
        "training.optimizer={kind: adam, eps: 1e-6}",
        "network.layers.0.conv.channels=7",
        "run.checkpoint.every=5",
        "training.schedule=cosine",
    )
    assert config.training.output_shape == (1, 32, 32)
    assert config.training.optimizer == Adam(kind="adam", eps=1e-6)
    assert config.network.layers is not None
    assert config.network.layers[0].conv is not None
    assert config.network.layers[0].conv.channels == 7
    assert config.run.checkpoint.every == 5
    assert isinstance(config.training.schedule, CosineSchedule)


def test_a_section_without_keys_is_empty(tmp_path: Path) -> None:
    text = "network: {layers: [{crop: 1}]}\ntraining: {output_shape: 1}\ndata:\naugment:\nrun:\n"
    (tmp_path / "c.yaml").write_text(text)
    config = load_config(tmp_path / "c.yaml", ["run.threads=3"])
    assert config.data.train == ()
    assert config.run.threads == 3


def test_an_override_changes_one_of_two_aliased_places(tmp_path: Path) -> None:
    text = "network: {layers: [{conv: &c {channels: 1, size: 2}}, {conv: *c}]}\n"
    (tmp_path / "c.yaml").write_text(text + "training: {output_shape: 1}\n")
    config = load_config(tmp_path / "c.yaml", ["network.layers.1.conv.channels=5"])
    layers = config.network.layers or ()
    assert [layer.conv.channels for layer in layers if layer.conv is not None] == [1, 5]


def test_a_file_is_read_once_for_both_configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, overrides = tmp_path / "c.yaml", ["training.batch=3", "network.layers.1.conv.channels=5"]
    layer = "{conv: {channels: 4, size: 3}}"
    path.write_text(f"network: {{layers: [&same {layer}, *same]}}\ntraining: {{output_shape: 4}}\n")
    wanted = load_config(path), load_config(path, overrides)
    read: list[Any] = []

    def counted(given: Any) -> Any:
        read.append(given)
        return read_file(given)

    monkeypatch.setattr("znnpy.config.loading.read_file", counted)
    plain, other = load_both(path, overrides)
    assert (plain, other) == wanted
    assert plain.place("training", "batch").startswith(f"{path}:2")
    assert not other.place("training", "batch").startswith(str(path))
    assert wanted[0] != wanted[1]
    assert load_both(path, []) == (wanted[0], wanted[0])
    assert read == [path, path]


def test_the_last_override_wins() -> None:
    assert loaded("training.batch=2", "training.batch=3").training.batch == 3


def test_an_override_may_not_touch_the_values_given() -> None:
    loaded("network.layers.0.conv.channels=7")
    assert BASE["network"]["layers"][0]["conv"]["channels"] == 2


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("training.batch", "key=value"),
        ("=3", "key=value"),
        ("training..batch=3", "key=value"),
        ("training.bacth=3", "'batch'?"),
        ("training.batch=zero", "whole number"),
        ("training.batch.x=1", "no mapping"),
        ("network.layers.1.conv.channels=3", "counted from 0"),
        ("network.layers.x=3", "counted from 0"),
        ("training.learning_rate=.nan", "finite"),
        ("training.batch=!!int 3", "tags"),
        ("training.batch=[", "not valid YAML"),
        ("run.checkpoint.evry=3", "'every'?"),
        ("run.nothing.deep=3", "run.nothing: unknown key"),
        ("network.layers.0.conv.size=[1, 2]", "[z, y, x]"),
    ],
)
def test_errors_of_an_override_name_the_override(override: str, words: str) -> None:
    base = {**BASE, "training": {"output_shape": 8, "batch": 1}}
    with pytest.raises(MalformedConfigError) as caught:
        config_from(base, overrides=[override])
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"--set {override}: ")
    assert words in line


def test_paths_count_from_the_folder_of_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    text = "network: {znn: nets/a.znn}\ntraining: {output_shape: 1}\n"
    text += (
        "data: {train: [{image: 'a.h5:volumes/raw', labels: /abs/b.tif}]}\nrun: {directory: out}\n"
    )
    (folder / "c.yaml").write_text(text)
    config = load_config(folder / "c.yaml")
    volume = config.data.train[0]
    assert config.network.znn == folder / "nets/a.znn"
    assert volume.image[""].path == folder / "a.h5"
    assert volume.image[""].dataset == "volumes/raw"
    assert volume.labels is not None
    assert str(volume.labels[""]) == "/abs/b.tif"
    assert config.run.directory == folder / "out"


def test_paths_of_python_are_those_of_text(tmp_path: Path) -> None:
    """Relative ones count from the folder: a run that goes on finds them where they were."""

    def made(kind: Any) -> Config:
        volume = {"image": {"": kind("raw.h5:raw")}, "labels": kind("labels.tif")}
        training = {**BASE["training"], "start_from": kind("../weights.npz")}
        return config_from({**BASE, "data": {"train": [volume]}, "training": training}, tmp_path)

    assert made(Path) == made(str)
    assert made(Path).training.start_from.weights == tmp_path / "../weights.npz"  # type: ignore[union-attr]


def test_the_default_run_directory_lies_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("network: {znn: a.znn}\ntraining: {output_shape: 1}\n")
    assert load_config(tmp_path / "c.yaml").run.directory == tmp_path / "run"


@pytest.mark.parametrize(
    ("text", "path", "dataset"),
    [
        ("a.h5", "a.h5", None),
        ("a.HDF5:/x//y/", "a.HDF5", "x/y"),
        ("run:1/a.h5:raw:2", "run:1/a.h5", "raw:2"),
        ("a:b.tif", "a:b.tif", None),
        ("a.zarr", "a.zarr", None),
        ("b/a.ome.zarr:labels/0", "b/a.ome.zarr", "labels/0"),
    ],
)
def test_sources(text: str, path: str, dataset: str | None) -> None:
    config = config_from({**BASE, "data": {"train": [{"image": {"left": text}}]}})
    source = config.data.train[0].image["left"]
    assert (str(source.path), source.dataset) == (path, dataset)


@given(st.integers(1, 999), st.sampled_from([unit for unit in UNITS if unit != "b"]))
def test_memory_sizes(number: int, unit: str) -> None:
    assert loaded(f"run.max_memory={number}{unit}").run.max_memory == number * UNITS[unit]


def test_memory_units() -> None:
    assert loaded("run.max_memory=8GiB").run.max_memory == 8 * 2**30
    assert loaded("run.max_memory=1.5 MB").run.max_memory == 1_500_000


def test_shorthand_means_the_full_form() -> None:
    short = config_from({**BASE, "data": {"target": "affinity"}, "augment": {"swaps": "xy"}})
    assert short.data.target == AffinityTarget(kind="affinity")
    assert short.augment.swaps == "yx"
    layers = [{"max_filter": 2}, {"max_pool": [1, 2, 2]}, {"dropout": 1}, {"crop": [0, 1, 2]}]
    full = [{"max_filter": {"size": 2}}, {"max_pool": {"size": [1, 2, 2]}}]
    full += [{"dropout": {"keep": 1.0}}, {"crop": {"offset": [0, 1, 2]}}]
    training = BASE["training"]
    a = config_from({"network": {"layers": layers}, "training": training})
    b = config_from({"network": {"layers": full}, "training": training})
    assert a == b


def test_configs_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        loaded().training.batch = 2


def test_paths_of_overrides_count_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    data = {**BASE, "data": {"train": [{"image": "a.h5:raw", "labels": "a.h5:labels"}]}}
    overrides = [
        "data.train.0.labels={output: b.h5:labels}",
        "data.validation=[{image: c.zarr}]",
        "run.directory=run",
        "training.loss=softmax",
        "training.optimizer=adam",
    ]
    config = config_from(data, folder=tmp_path / "there", overrides=overrides)
    assert config.data.train[0].image[""].path == tmp_path / "there" / "a.h5"
    assert str(config.data.train[0].labels["output"]) == f"{here}/b.h5:labels"
    assert config.data.validation[0].image[""].path == here / "c.zarr"
    assert config.run.directory == here / "run"
    assert config_from(data, folder=tmp_path).run.directory == tmp_path / "run"
    network = config_from(BASE | {"network": {"znn": "n"}}, tmp_path, ["network.znn=~/n.znn"])
    assert network.network.znn == Path.home() / "n.znn"
    with pytest.raises(MalformedConfigError, match="names a home that is not known"):
        config_from(data, overrides=["run.directory=~no-such-user/run"])
