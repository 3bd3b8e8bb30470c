"""Malformed configs: each error says the line, the key, what is wrong, and what was meant."""

from pathlib import Path
from textwrap import dedent

import pytest

from znnpy.config import MalformedConfigError, load_config
from znnpy.errors import ConfigError

GOOD = """\
network:
  layers:
    - conv: {channels: 2, size: 3}
    - max_filter: 2
data:
  target: boundary
training:
  output_shape: 8
  batch: 1
run:
  threads: 2
"""

# (replace, by, line, key, words that the message must hold)
CASES = [
    ("  batch: 1", "  bacth: 1", 9, "training.bacth", ["unknown key", "'batch'"]),
    ("channels: 2", "chanels: 2", 3, "network.layers.0.conv.chanels", ["unknown key", "'channels'"]),
    ("size: 3", "kernel_size: 3", 3, "network.layers.0.conv.kernel_size", ["'size'"]),
    ("channels: 2, ", "", 3, "network.layers.0.conv.channels", ["is missing"]),
    ("channels: 2", "channels: two", 3, "network.layers.0.conv.channels", ["whole number", "'two'"]),
    ("channels: 2", "channels: 2.5", 3, "network.layers.0.conv.channels", ["whole number", "2.5"]),
    ("channels: 2", "channels: true", 3, "network.layers.0.conv.channels", ["whole number", "true"]),
    ("channels: 2", "channels: 0", 3, "network.layers.0.conv.channels", ["at least 1", "found 0"]),
    ("size: 3", "size: [3, 3]", 3, "network.layers.0.conv.size", ["[z, y, x]", "[3, 3]"]),
    ("size: 3", "size: [3, 0, 3]", 3, "network.layers.0.conv.size.1", ["at least 1"]),
    ("size: 3", "size: 3, function: rleu", 3, "network.layers.0.conv.function", ["'relu'?"]),
    ("size: 3", "size: 3, function: logistics", 3, "network.layers.0.conv.function", ["'logistic'?"]),
    ("size: 3", "size: 3, slope: 0.1", 3, "network.layers.0.conv.slope", ["only leaky_relu and elu have this"]),
    ("size: 3", "size: 3, function: prelu, slope: 0.1", 3, "network.layers.0.conv.slope", ["is prelu"]),
    ("size: 3", "size: 3, init: {kind: he, low: 1}", 3, "network.layers.0.conv.init.low", ["uniform"]),
    ("size: 3", "size: 3, bias_init: he", 3, "network.layers.0.conv.bias_init", ["fan-in"]),
    ("size: 3", "size: 3, padding: -1", 3, "network.layers.0.conv.padding", ["[[before, after], ...]", "-1"]),
    ("size: 3", "size: 3, padding: [1, 1]", 3, "network.layers.0.conv.padding", ["or same", "[1, 1]"]),
    ("size: 3", "size: 3, padding: some", 3, "network.layers.0.conv.padding", ["or same", "'some'"]),
    ("size: 3", "size: 3, border: mirror", 3, "network.layers.0.conv.border", ["replicate, reflect"]),
    ("size: 3", "size: 3, groups: 0", 3, "network.layers.0.conv.groups", ["at least 1"]),
    ("max_filter: 2", "upsample: 0", 4, "network.layers.1.upsample", ["at least 1"]),
    ("max_filter: 2", "upsample: 1.5", 4, "network.layers.1.upsample", ["whole number", "1.5"]),
    ("max_filter: 2", "max_pool: 2.0", 4, "network.layers.1.max_pool", ["whole number", "2.0"]),
    ("max_filter: 2", "upsample: {factor: 2, mode: cubic}", 4, "network.layers.1.upsample.mode", ["linear"]),
    ("max_filter: 2", "maxfilter: 2", 4, "network.layers.1.maxfilter", ["'max_filter'?"]),
    ("max_filter: 2", "dropout: 0", 4, "network.layers.1.dropout", ["greater than 0"]),
    ("- max_filter: 2", "- {max_filter: 2, crop: 1}", 4, "network.layers.1", ["exactly one"]),
    ("network:", "network:\n  znn: a.znn", 1, "network", ["exactly one", "layers and znn"]),
    ("target: boundary", "target: bondary", 6, "data.target", ["'boundary'?", "affinity, lsd, labels"]),
    ("target: boundary", "in_memory: maybe", 6, "data.in_memory", ["auto, true, false", "'maybe'"]),
    ("target: boundary", "train: {image: a.h5}", 6, "data.train", ["must be a list"]),
    ("target: boundary", "train: [{image: 3}]", 6, "data.train.0.image", ["path:dataset", "3"]),
    ("target: boundary", "train: [{labels: a.h5}]", 6, "data.train.0.image", ["is missing"]),
    ("  batch: 1", "  batch: 1\n  batch: 2", 10, "training.batch", ["written twice", "line 9"]),
    ("  batch: 1", "  learning_rate: .nan", 9, "training.learning_rate", ["finite"]),
    ("  batch: 1", "  learning_rate: -.INF", 9, "training.learning_rate", ["finite"]),
    ("  batch: 1", "  learning_rate: 1e999", 9, "training.learning_rate", ["finite"]),
    ("  batch: 1", "  learning_rate: nan", 9, "training.learning_rate", ["a number", "'nan'"]),
    ("  batch: 1", "  learning_rate: '0.1'", 9, "training.learning_rate", ["a number"]),
    ("  batch: 1", "  learning_rate: 0", 9, "training.learning_rate", ["greater than 0"]),
    ("  batch: 1", "  seed: 99999999999999999999999", 9, "training.seed", ["too large"]),
    ("  batch: 1", "  batch: !!int 1", 9, "training.batch", ["tags"]),
    ("  batch: 1", "  batch: !!python/object:os.system x", 9, "training.batch", ["tags"]),
    ("  batch: 1", "  <<: {batch: 1}", 9, "training.<<", ["merge keys"]),
    ("  batch: 1", "  optimizer: adm", 9, "training.optimizer", ["'adam'?", "sgd, adam"]),
    ("  batch: 1", "  optimizer: {kind: adam, momentum: 0.9}", 9, "training.optimizer.momentum", ["beta1"]),
    ("  batch: 1", "  optimizer: {momentum: 0.9}", 9, "training.optimizer.kind", ["missing", "sgd, adam"]),
    ("  batch: 1", "  optimizer: {kind: sgd, momentum: 1}", 9, "training.optimizer.momentum", ["less than 1"]),
    ("  batch: 1", "  optimizer: {kind: sgd, momentum: 0, nesterov: true}", 9,
     "training.optimizer.nesterov", ["momentum above 0"]),
    ("  batch: 1", "  schedule: step", 9, "training.schedule", ["needs every", "{kind: step, every: ...}"]),
    ("  batch: 1", "  schedule: {kind: cosine, warmup: 0}", 9, "training.schedule.warmup", ["at least 1"]),
    ("  batch: 1", "  schedule: {kind: poly, warmup: {start: 1}}", 9, "training.schedule.warmup.iterations",
     ["is missing"]),
    ("  batch: 1", "  schedule: {kind: poly, warmup_steps: 9}", 9, "training.schedule.warmup_steps", ["'warmup'?"]),
    ("  batch: 1", "  schedule: {kind: one_cycle, warmup: 9}", 9, "training.schedule.warmup", ["unknown key"]),
    ("  batch: 1", "  schedule: {kind: one_cycle, pct_start: 1}", 9, "training.schedule.pct_start", ["less than 1"]),
    ("  output_shape: 8\n", "", 7, "training.output_shape", ["is missing"]),
    ("threads: 2", "max_memory: 8 GiBs", 11, "run.max_memory", ["8GiB"]),
    ("threads: 2", "directory: [a]", 11, "run.directory", ["a path"]),
    ("threads: 2", "checkpoint: 5", 11, "run.checkpoint", ["mapping", "5"]),
    ("threads: 2", "policy: critical_path", 11, "run.policy", ["'critical-path'?"]),
    ("run:", "runs:", 10, "runs", ["unknown key", "'run'?"]),
    ("run:", "run: 3\nother:", 10, "run", ["mapping", "found 3"]),
]  # fmt: skip


def problems(tmp_path: Path, text: str) -> tuple[MalformedConfigError, Path]:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(MalformedConfigError) as caught:
        load_config(path)
    return caught.value, path


def test_the_good_one_loads(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    assert load_config(path).training.output_shape == (8, 8, 8)


@pytest.mark.quick(20)
@pytest.mark.parametrize(("old", "new", "line", "key", "words"), CASES, ids=[c[1] for c in CASES])
def test_one_error_with_line_key_and_suggestion(
    tmp_path: Path, old: str, new: str, line: int, key: str, words: list[str]
) -> None:
    assert old in GOOD
    error, path = problems(tmp_path, GOOD.replace(old, new, 1))
    chosen = [p for p in error.problems if ".".join(map(str, p.key)).startswith(key)]
    assert chosen, str(error)
    assert chosen[0].place.line == line
    for word in words:
        assert word in chosen[0].message
    assert str(chosen[0]).startswith(f"{path}:{line}: {key}")
    assert len(error.problems) <= 2
    assert isinstance(error, ConfigError)


def test_all_errors_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = GOOD.replace("channels: 2", "channels: 0").replace("batch: 1", "batch: 0")
    error, _ = problems(tmp_path, text.replace("threads: 2", "treads: 2"))
    assert [p.place.line for p in error.problems] == [3, 9, 11]
    assert len(str(error).splitlines()) == 3


def test_edges_of_the_full_form(tmp_path: Path) -> None:
    text = dedent("""\
        network:
          nodes:
            in: {kind: input, channels: 1, function: relu}
            out: {type: transfer, channels: 1}
          edges:
            a: {kind: convv, from: in, to: out}
            b: {kind: dropout, from: in, to: out, keep: 1.5}
            c: {kind: crop, input: in, to: out, offset: -1}
        training: {output_shape: 1}
        """)
    error, _ = problems(tmp_path, text)
    found = {(p.place.line, ".".join(map(str, p.key))): p.message for p in error.problems}
    assert "transfer" in found[3, "network.nodes.in.function"]
    assert "'kind'?" in found[4, "network.nodes.out.type"]
    assert "'conv'?" in found[6, "network.edges.a.kind"]
    assert "at most 1" in found[7, "network.edges.b.keep"]
    assert "'from'?" in found[8, "network.edges.c.input"]
    assert "at least 0" in found[8, "network.edges.c.offset"]


@pytest.mark.parametrize(
    ("raw", "line", "words"),
    [
        (b"", 0, "is empty"),
        (b"- a\n- b\n", 1, "mapping"),
        (b"just words\n", 1, "mapping"),
        (b"a: 1\nb: \xff\n", 2, "UTF-8"),
        (b"a: [1\nb: 2\n", 2, "not valid YAML"),
        (b"a: 1\n\tb: 2\n", 2, "not valid YAML"),
        (b"run: {}\n---\nrun: {}\n", 2, "several documents"),
        (b"run: *nothing\n", 1, "*nothing"),
        (b"? [a, b]\n: 1\n", 1, "plain text"),
        (b"a: \x00\n", 0, "not valid YAML"),
        (b"a: " + b"[" * 100 + b"]" * 100, 1, "nested deeper"),
        (b"#" * (2**20 + 1), 0, "1 MiB"),
        (b"a: 1\nb: " + b"!" * 20_000, 2, "a line is longer"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, raw: bytes, line: int, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(raw)
    with pytest.raises(MalformedConfigError, match=r".") as caught:
        load_config(path)
    problem = caught.value.problems[0]
    assert words in str(caught.value)
    assert problem.place.line == line
    assert str(path) in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="is a folder; a YAML file is needed"):
        load_config(tmp_path)
    (tmp_path / "config.yaml").write_text("network: {}")
    with pytest.raises(ConfigError, match=r"is a folder; name the config in it, config\.yaml"):
        load_config(tmp_path)


def test_alias_bomb_is_refused_before_it_expands(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 20)]
    error, _ = problems(tmp_path, "\n".join(lines))
    assert "more than 6000 values" in str(error)


def test_too_many_values_are_refused(tmp_path: Path) -> None:
    error, _ = problems(tmp_path, "a: [" + "1,\n" * 30_000 + "]")
    assert "more than 6000 values" in str(error)


def test_an_alias_of_itself_is_refused(tmp_path: Path) -> None:
    error, _ = problems(tmp_path, "a: &a [*a]\n")
    assert "names no anchor above it" in str(error)


def test_a_few_aliases_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "aliases.yaml"
    text = GOOD.replace("size: 3", "size: &s [1, 3, 3]").replace("max_filter: 2", "max_filter: *s")
    path.write_text(text)
    layers = load_config(path).network.layers
    assert layers is not None
    assert layers[1].max_filter is not None
    assert layers[1].max_filter.size == (1, 3, 3)


def test_braces_in_a_value_are_shown_as_they_are(tmp_path: Path) -> None:
    text = GOOD.replace("threads: 2", "max_memory: '{text}{0}'")
    error, _ = problems(tmp_path, text)
    assert "'{text}{0}'" in str(error)
