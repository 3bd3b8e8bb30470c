"""Every example of the template trains: the values that stand in it, and those that its comments name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from znnpy.cli.config import write_plan
from znnpy.config import load_config
from znnpy.config.template import template
from znnpy.config.unet_section import UnetSection
from znnpy.layers.edges import EDGE_KINDS
from znnpy.network import initial_parameters, trained_network
from znnpy.train.progress import Quiet
from znnpy.train.session import train

KEY = re.compile(r"^  (?P<off># )?(?P<key>[a-z_]+): (?P<value>.+?)(?:\s+# (?P<words>.*))?$")
# "one, two or three", "one, two, or three: why", "one, two, a longer thing"
SEVERAL = re.compile(r"^[\w-]+(?:,? or [\w-]+|(?:, [\w-]+)+(?:,? or [\w-]+)?)(?=$|[,:;])")
MORE = re.compile(r"(?:e\.g\. |or short, (?:\w+: )?)(.+)$|^(\S+) is ")
TAPS = "conv: {channels: 2, size: 3, function: relu}"
POOLED = (
    "{max_pool: [2, 4, 4]}"  # so that the output is not finer than the input where it grows again
)
# Before layers that need more than they are given.
BEFORE = {
    "conv_transpose": [POOLED],
    "upsample": [POOLED],
    "resize": ["{max_pool: [1, 4, 4]}"],
    "depth_to_space": [POOLED, "{conv: {channels: 8, size: 1}}"],
}
SMALL = [
    "training.output_shape=4",
    "training.iterations=2",
    "training.conv=direct",
    "run.log_every=1",
    "run.threads=1",
]
# What else an example needs: keys of its layer, and settings, where it makes sense for some outputs only.
FIRST = {
    "slope": {"function": "leaky_relu"},
    "amplitude": {"function": "tanh"},
    "gain": {"function": "tanh"},
    "tied": {"function": "prelu"},
    "repeat": {"size": "[1, 2, 2]"},
    "padding": {"size": "3"},
    "border": {"size": "3", "padding": "1"},
    "weight_standardization": {"size": "3"},
}
UNETS = {"valid": {"size": [1, 3, 3]}}  # volumes are thin


def as_loss(*names: str) -> tuple[str, ...]:
    """How settings begin that take these losses."""
    return tuple(f"training.loss={begin}{name}" for name in names for begin in ("", "{kind: "))


OUTPUTS = {
    "data.target={kind: affinity": 3,
    "data.target={kind: labels": 2,
    "data.target={kind: lsd": 10,
    **dict.fromkeys(as_loss("malis"), 3),
    **dict.fromkeys(as_loss("softmax", "ce_dice"), 2),
}
FUNCTIONS = dict.fromkeys(as_loss("focal", "dice"), "logistic")
LOSSES = {"data.target={kind: labels": "softmax", "data.target={kind: lsd": "square"}
PREPARED = "data.normalize=none"  # of what data.prepare has normalised
TARGETS = {as_loss("softmax", "ce_dice"): "labels", as_loss("malis"): "affinity"}
# These hide what other keys say, or do not suit them: tried without them.
ALONE = (
    "augment.enabled=",
    "augment.slip=",
    "augment.step=",
    "augment.rotate=",
    "augment.affine=",
    "augment.elastic=",
    "data.prepare=",
    "data.resolution=",
    "data.target=",
    "training.loss=",
    "training.iterations=",
    "training.output_shape=",
    "training.plan=",
    "training.precision=",
)
ZNN = """\
nodes raw
type input
size 1

edges c1
type conv
init xavier
size 3,3,3
stride 1,1,1
input raw
output out

nodes out
type transfer
function linear
size 1
init constant
init_args 0
"""


def sections() -> dict[str, list[str]]:
    """Lines of the template by section."""
    found: dict[str, list[str]] = {}
    for line in template().splitlines():
        if line and line[0] not in "# ":
            found[line.split(":")[0]] = here = []
        elif found:
            here.append(line)
    return found


def named(value: str, words: str | None) -> list[str]:
    """A value, and the others that its comment names."""
    words = words or ""
    several, more = SEVERAL.match(words), MORE.search(words)
    listed = re.split(r",? or |, ", several[0]) if several else []
    switch = ["true", "false"] if value in ("true", "false") else []
    shown = [more[1] or more[2]] if more else []
    return list(dict.fromkeys([value, *switch, *listed, *shown]))


def examples() -> Iterator[str]:
    """`section.key=value` for all keys but those of networks and volumes."""
    for section in [name for name in sections() if name != "network"]:
        for match in filter(None, map(KEY.match, sections()[section])):
            if (section, match["key"]) != ("data", "train"):
                for value in named(match["value"], match["words"]):
                    yield f"{section}.{match['key']}={value}"


def network_part(first: str, last: str) -> list[str]:
    """Comments between two of the lines that say what follows, without their signs."""
    lines = sections()["network"]
    begin, end = (next(i for i, s in enumerate(lines) if words in s) for words in (first, last))
    return [line[4:] for line in lines[begin + 1 : end]]


def layers() -> Iterator[str]:
    """Each key of conv in a layer of its own, and each further layer."""
    for match in filter(None, map(KEY.match, network_part("Further keys", "Further layers"))):
        for value in named(match["value"], match["words"]):
            given = {
                "channels": "2",
                "size": "1",
                **FIRST.get(match["key"], {}),
                match["key"]: value,
            }
            yield f"{{conv: {{{', '.join(map(': '.join, given.items()))}}}}}"
    for line in network_part("Further layers", "Instead of a chain"):
        layer, _, words = line.strip().removeprefix("- ").partition("  #")
        kind, _, value = layer.strip().partition(": ")
        for one in named(value, words.strip()):
            yield f"{{{kind}: {one}}}"


def unets() -> list[dict[str, Any]]:
    """The U-Net that stands there, and each further key in a small one."""
    matches = [m for m in map(KEY.match, network_part("Or a U-Net", "Or a network file")) if m]
    (whole,) = [m["value"] for m in matches if m["key"] == "unet"]
    found = [yaml.safe_load(whole)]
    for match in matches:
        if match["key"] != "unet":
            for value in named(match["value"], match["words"]):
                given = {match["key"]: yaml.safe_load(value)}
                found.append({"widths": [2, 2]} | UNETS.get(value, {}) | given)
    return found


def volumes() -> list[dict[str, Any]]:
    """The volumes of data.train, which stand there as comments."""
    lines = [line[3:] for line in sections()["data"] if re.match(r"  #  [- ]", line)]
    one, several = yaml.safe_load("\n".join(lines))
    assert set(one) == {"image", "labels", "mask", "slices"}
    return [one, one | several]


def flow(value: object) -> str:
    """A value as `--set` takes it."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).strip()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The template as `znnpy init` writes it, and all files that it names; volumes are in lzf."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (6, 20, 20)).astype(np.uint8).repeat(2, 0).repeat(2, 1).repeat(2, 2)
    raw = rng.integers(0, 255, labels.shape).astype(np.uint8)
    arrays = {"raw": raw, "labels/neuron_ids": labels, "mask": np.ones_like(labels)}
    for file, names in (("train.h5", list(arrays)), ("a.h5", ["raw"]), ("b.h5", ["raw"])):
        with h5py.File(tmp_path / file, "w") as into:
            for name in names:
                array = arrays[name]
                into.create_dataset(f"volumes/{name}", data=array, compression="lzf")
    (tmp_path / "config.yaml").write_text(template())
    (tmp_path / "net.znn").write_text(ZNN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def chain(*kinds: str) -> str:
    return f"network.layers=[{', '.join(kinds)}]"


def trained(*settings: str, volume: int = 0) -> None:
    """Train the template here, made small, with examples of it."""
    images = next((n for words, n in OUTPUTS.items() if any(words in s for s in settings)), 1)
    function = next(
        (name for words, name in FUNCTIONS.items() if any(words in s for s in settings)), "linear"
    )
    network = chain(
        f"{{{TAPS}}}", f"{{conv: {{channels: {images}, size: 1, function: {function}}}}}"
    )
    if any(setting.startswith("network") for setting in settings):
        network = "network.name=example"
    here = flow([volumes()[volume]])
    given = [network, f"data.train={here}", *SMALL, *settings]
    # Enough to be validated, or waiting for what validations say.
    if "training.iterations=1000" in settings or any("patience" in it for it in settings):
        given.append(f"data.validation={here}")
    if "training.plan=plan.json" in settings:
        pinned = [setting for setting in given if setting != "training.plan=plan.json"]
        write_plan(load_config("config.yaml", pinned), Path("plan.json"))
    if any(setting.startswith("training.start_from") for setting in settings):
        random = load_config("config.yaml", [it for it in given if "start_from" not in it])
        np.savez("weights.npz", **initial_parameters(trained_network(random), 1))
    config = load_config("config.yaml", given)
    assert train(config, reporter=Quiet()).finished
    assert list(Path("run/checkpoints").iterdir())


def rounds() -> list[list[str]]:
    """All examples of all keys, one of each key at a time; those that need others stand alone."""
    by_key: dict[str, list[str]] = {}
    alone = []
    for example in examples():
        if any(example.startswith(words) for words in ALONE):
            targets = [it for words, it in TARGETS.items() if example.startswith(words)]
            losses = [it for words, it in LOSSES.items() if example.startswith(words)]
            others = [f"data.target={it}" for it in targets] + [
                f"training.loss={it}" for it in losses
            ]
            others += [PREPARED] * example.startswith("data.prepare=")
            alone.append([*others, example])
        else:
            by_key.setdefault(example.partition("=")[0], []).append(example)
    most = max(map(len, by_key.values()))
    together = [[values[i % len(values)] for values in by_key.values()] for i in range(most)]
    return together + alone


@pytest.mark.quick(6)
@pytest.mark.parametrize("settings", rounds(), ids=lambda s: s[-1] if len(s) < 3 else "together")
def test_keys(settings: list[str]) -> None:
    trained(*settings)


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", EDGE_KINDS)
def test_layers(kind: str) -> None:
    """All of a kind, one after the other; softmax is over several images."""
    found = [layer for layer in layers() if layer.startswith(f"{{{kind}:")]
    assert found
    inner = [layer for layer in found if "softmax" not in layer]
    before = BEFORE.get(kind, [])
    trained(chain(f"{{{TAPS}}}", *before, *inner, "{conv: {channels: 1, size: 1}}"))


def test_softmax() -> None:
    (layer,) = [layer for layer in layers() if "softmax" in layer]
    trained(chain(f"{{{TAPS}}}", layer), "data.target=labels", "training.loss=softmax")


def test_graph() -> None:
    """Nodes and edges."""
    graph = yaml.safe_load("\n".join(network_part("Instead of a chain", "kinds of nodes")))
    (output,) = [node for node in graph["nodes"].values() if node["kind"] == "transfer"]
    assert output["channels"] == 3
    trained(f"network={flow(graph)}", "data.target={kind: affinity}")


@pytest.mark.quick(3)
@pytest.mark.parametrize("unet", unets(), ids=lambda keys: "-".join(map(str, list(keys)[-1:])))
def test_unets(unet: dict[str, Any]) -> None:
    coarse = ["training.output_shape=[4, 16, 16]"] * (len(unet["widths"]) > 2)
    own = {name: {"target": {"kind": "lsd", "sigma": 2}} for name in unet.get("heads", {})}
    outputs = [f"training.outputs={flow(own)}"] * bool(own)
    trained(f"network={flow({'unet': unet})}", *coarse, *outputs)


def test_znn_file() -> None:
    lines = sections()["network"]
    (line,) = [line for line in lines if line.startswith("  #   znn: ")]
    trained(f"network={{{line.removeprefix('  #   ')}}}")


def test_several_inputs() -> None:
    names = list(volumes()[1]["image"])
    assert len(names) == 2
    nodes = {name: {"kind": "input", "channels": 1} for name in names}
    out = {"out": {"kind": "transfer", "channels": 1}}
    edges = {f"c-{name}": {"kind": "conv", "from": name, "to": "out", "size": 3} for name in names}
    trained(f"network={flow({'nodes': nodes | out, 'edges': edges})}", volume=1)


def test_what_the_examples_are() -> None:
    """That the comments are understood: some of each kind."""
    assert {
        "data.allow_filters=[zstd]",
        "data.target=labels",
        "data.test=[]",
        "data.replace_nonfinite=true",
        "training.plan=plan.json",
        "data.normalize=unit",
        "training.precision=float64",
        "training.loss=softmax",
        "run.policy=layers",
        "augment.swaps=none",
        "augment.enabled=false",
        "training.schedule={kind: cosine, every: 1000, final: 0}",
    } <= set(examples())
    assert {
        "{conv: {channels: 2, size: 1, function: forward_logistic}}",
        "{conv: {channels: 2, size: 1, init: xavier}}",
        "{conv: {channels: 2, size: [1, 2, 2], repeat: [1, 2, 2]}}",
        "{conv: {channels: 2, size: 1, init: {kind: normal, mean: 0, std: 0.01}}}",
        "{max_filter: {size: 2, stride: 2}}",
        "{dropout: 0.5}",
        "{crop: [0, 1, 1]}",
    } <= set(layers())
    keys = {key for unet in unets() for key in unet}
    assert keys >= set(UnetSection.model_fields) - {"function", "slope", "bias", "dropout"}
    assert {"widths": [2, 2], "size": [[1, 3, 3], 3]} in unets()
    assert {"widths": [2, 2], "up": {"kind": "nearest", "channels": "same"}} in unets()
    assert {"widths": [2, 2], "block": "residual"} in unets()
