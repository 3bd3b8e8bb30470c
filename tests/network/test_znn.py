"""ZNN's text format: what is read, what ZNN does not read either, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from znnpy.config import changes_that_matter, dump, load_config
from znnpy.errors import ConfigError, NetworkError
from znnpy.layers.activation_functions import FunctionName
from znnpy.network import load_network, self_contained
from znnpy.network.types import Edge, Init, Network, Node
from znnpy.network.znn import parse_znn

SMALL = """\
# a sliding-window net with a skip
nodes raw
type input
size 1

edges c1
type    conv
init    xavier
size    1,3,3       # z,y,x
stride  1,1,1
input   raw
output  n1
load    0

nodes n1
type transfer
function rectify_linear
function_args 0
size 10
init constant
init_args 0.1      # comment

edges pool
type max_filter
size 1,2,2
stride 1,2,2
input n1
output n2

nodes n2
type sum
function rectify_linear
size 10

edges c2
type conv
init uniform
init_args 0.05
size 3,3,3
stride 1,2,2
sparse 1,1,2
input n2
output n3

nodes n3
type transfer
function forward_logistics
size 4

edges drop
type dropout
ratio 0.7
input n3
output n4

nodes n4
type sum
size 4

edges cut
type crop
offset 0,1,2
input n4
output out

edges mp
type max_pool
size 1,2,2
stride 1,2,2
input n3
output out2

nodes out
type sum
size 4

nodes out2
type sum
size 4
"""


def block(group: str, name: str, **values: object) -> str:
    lines = "".join(f"{key} {value}\n" for key, value in values.items())
    return f"{group} {name}\n{lines}"


INPUT = block("nodes", "in", type="input", size=1)
CONV = {"type": "conv", "input": "in", "output": "out", "size": "1,1,1", "init": "msra"}
BARE = {"size": None, "init": None}
OUT = {"type": "transfer", "function": "linear", "size": 2}


def one(node: dict[str, object] | None = None, edge: dict[str, object] | None = None) -> Network:
    """A net of one conv, with changed keys of its output node and edge (None leaves one out)."""
    nodes = {k: v for k, v in {**OUT, **(node or {})}.items() if v is not None}
    edges = {k: v for k, v in {**CONV, **(edge or {})}.items() if v is not None}
    return parse_znn(INPUT + block("nodes", "out", **nodes) + block("edges", "c", **edges), "f.znn")


def test_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "small.znn"
    path.write_text(SMALL)
    net = load_network(path)
    names = ["raw", "n1", "n2", "n3", "n4", "out", "out2"]
    assert [n.name for n in net.nodes] == names
    assert net.node("n1") == Node("n1", "transfer", 10, "relu", init=Init("constant", value=0.1))
    assert net.node("n2") == Node("n2", "sum", 10, bias=False)
    assert net.node("n3").function == "forward_logistic"
    assert net.node("n3").init == Init("constant", value=0.0)
    edges = {e.name: e for e in net.edges}
    assert edges["c1"] == Edge("c1", "conv", "raw", "n1", size=(1, 3, 3), init=Init("xavier"))
    assert edges["pool"].sparsens == (1, 2, 2)
    assert edges["pool"].stride == (1, 1, 1)
    assert edges["c2"].sparsens == (1, 2, 2)
    assert edges["c2"].sparsity == (1, 1, 2)
    assert edges["c2"].stride == (1, 1, 1)
    assert edges["c2"].init == Init("uniform", low=-0.05, high=0.05)
    assert edges["drop"].keep == 0.7
    assert edges["cut"].offset == (0, 1, 2)
    assert (edges["mp"].stride, edges["mp"].sparsens) == ((1, 2, 2), (1, 1, 1))


def test_from_a_config(tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "a.znn").write_text(SMALL)
    (tmp_path / "c.yaml").write_text("network: {znn: nets/a.znn}\n")
    assert load_network(tmp_path / "c.yaml") == load_network(tmp_path / "nets" / "a.znn")


def test_a_saved_config_needs_no_file(tmp_path: Path) -> None:
    file, path = tmp_path / "a.znn", tmp_path / "c.yaml"
    file.write_text(SMALL)
    path.write_text("network: {znn: a.znn, name: small}\ntraining: {output_shape: 1}\n")
    config = load_config(path)
    saved = self_contained(config)
    net = load_network(file)
    file.write_text(SMALL.replace("size 3,3,3", "size 3,3,5"))
    assert changes_that_matter(saved, self_contained(config)) == ["network.edges.c2.size"]
    file.unlink()
    path.write_text(dump(saved))
    assert load_network(path) == net
    assert load_config(path).network.name == "small"
    assert self_contained(saved) is saved


@pytest.mark.parametrize(
    ("words", "init"),
    [
        (("zero", None), Init("constant", value=0.0)),
        (("constant", "-2"), Init("constant", value=-2.0)),
        (("uniform", None), Init("uniform", low=-0.1, high=0.1)),
        (("uniform", "-1e-3,2"), Init("uniform", low=-1e-3, high=2.0)),
        (("gaussian", None), Init("normal", mean=0.0, std=0.01)),
        (("gaussian", "1,0.5"), Init("normal", mean=1.0, std=0.5)),
        (("xavier", None), Init("xavier")),
        (("normalized", None), Init("xavier")),
        (("msra", None), Init("he")),
        ((None, None), Init("uniform", low=-0.1, high=0.1)),
    ],
)
def test_inits(words: tuple[str | None, str | None], init: Init) -> None:
    net = one(edge={"init": words[0], "init_args": words[1]})
    assert net.edges[0].init == init


@pytest.mark.parametrize(
    ("word", "function"),
    [
        ("linear", "linear"),
        ("rectify_linear", "relu"),
        ("tanh", "tanh"),
        ("logistics", "logistic"),
        ("forward_logistics", "forward_logistic"),
        ("soft_sign", "soft_sign"),
    ],
)
def test_functions(word: str, function: FunctionName) -> None:
    assert one(node={"function": word}).node("out").function == function


def test_function_args() -> None:
    tanh = one(node={"function": "tanh", "function_args": "1.7159,0.6666"}).node("out")
    assert (tanh.amplitude, tanh.gain) == (1.7159, 0.6666)
    plain = one(node={"function": "tanh"}).node("out")
    assert (plain.amplitude, plain.gain) == (1, 1)
    assert one(node={"function": "elu", "function_args": "0.5"}).node("out").slope == 0.5
    for text in ("1", "1,0"):
        assert one(node={"function_args": text}).node("out") == one().node("out")


def test_repeat() -> None:
    net = one(edge={"size": "1,6,6", "repeat": "1,2,3"})
    assert net.edges[0].repeat == (1, 2, 3)
    with pytest.raises(NetworkError, match=r"f.znn:8: edge 'c': repeat .* must divide"):
        one(edge={"size": "1,6,6", "repeat": "1,4,2"})


def test_what_znn_does_not_read_says_nothing() -> None:
    net = one(node={"load": 0, "seeding": 0}, edge={"fft": 1, "load": 0})
    assert net == one()
    total = {"type": "sum", "function": "rectify_linear", "init": "zero"}
    assert one(node=total).node("out") == Node("out", "sum", 2, bias=False)
    loose = {"function": "rectify_linear", "function_args": "0", "init": "zero", "init_args": "3"}
    assert one(node=loose).node("out").function == "relu"


def test_defaults_and_the_last_value_wins() -> None:
    net = parse_znn(
        INPUT
        + block("nodes", "out", type="sum", size=1)
        + "edges d\ntype dropout\nratio 0.3\nratio 0.5\ninput in\noutput out\n"
        + block("edges", "m", type="max_pool", size="2,2,2", input="in", output="out")
        + block("edges", "p", type="dummy", input="in", output="out")
    )
    assert net.edges[0].keep == 0.5
    assert net.edges[1].stride == (2, 2, 2)
    assert net.edges[2] == Edge("p", "crop", "in", "out")


def test_maxout() -> None:
    both = (block("edges", name, type="maxout", input="in", output="out") for name in "ab")
    net = parse_znn(INPUT + block("nodes", "out", type="maxout", size=1) + "".join(both))
    assert net.node("out") == Node("out", "max", 1, bias=False)
    assert net.edges == tuple(Edge(name, "crop", "in", "out") for name in "ab")
    wrong = block("edges", "a", type="maxout", input="in", output="out", offset="1,1,1")
    with pytest.raises(ConfigError, match="unknown key 'offset'; maxout takes type, input, output"):
        parse_znn(INPUT + block("nodes", "out", type="maxout", size=1) + wrong)


def test_nodes_and_edges_of_one_name() -> None:
    edge = block("edges", "out", **CONV)
    net = parse_znn(INPUT + block("nodes", "out", **OUT) + edge)
    assert [e.name for e in net.edges] == ["out_edge"]


@pytest.mark.quick(12)
@pytest.mark.parametrize(
    ("node", "edge", "line", "words"),
    [
        ({"type": "concat"}, {}, 5, ["type is 'concat'", "input, transfer, sum, maxout"]),
        ({"type": None}, {}, 4, ["nodes 'out': type is missing"]),
        ({"size": None, "sise": 2}, {}, 7, ["size is missing", "'sise'"]),
        ({"size": "2.5"}, {}, 7, ["1 to 65536", "'2.5'"]),
        ({"size": 0}, {}, 7, ["1 to 65536"]),
        ({"function": "rectify"}, {}, 6, ["mean 'rectify_linear'?"]),
        ({"function": None}, {}, 4, ["function is missing"]),
        ({"init": "msra"}, {}, 8, ["init of biases"]),
        ({"init": "constant"}, {}, 4, ["init_args is missing"]),
        ({"sparse": "1,1,1"}, {}, 8, ["sparsity at a node"]),
        ({"dense": 1}, {}, 8, ["sparsity at a node"]),
        ({"functon_args": "1"}, {}, 8, ["unknown key 'functon_args'", "mean 'function_args'?"]),
        ({"eta": "0.1"}, {}, 8, ["unknown key 'eta'", "training.learning_rate"]),
        ({"biases": "x"}, {}, 8, ["unknown key 'biases'", "not read"]),
        ({"stride": "1,1,1"}, {}, 8, ["unknown key 'stride'", "transfer takes type, size"]),
        ({"type": "sum", "eta": "0.1"}, {}, 8, ["unknown key 'eta'"]),
        ({"function_args": "2,0"}, {}, 8, ["function_args", "not supported"]),
        ({"function": "tanh", "function_args": "1"}, {}, 8, ["function_args needs 2 numbers"]),
        ({"function": "tanh", "function_args": "0,1"}, {}, 8, ["must not be 0", "'0,1'"]),
        ({"function": "elu", "function_args": "-1"}, {}, 8, ["at least 0"]),
        ({}, {"type": "convs"}, 9, ["mean 'conv'?"]),
        ({}, {"type": "softmax"}, 9, ["type is 'softmax'"]),
        ({}, {"size": "3,3"}, 12, ["three whole numbers", "'3,3'"]),
        ({}, {"size": "3,0,3"}, 12, ["at least 1"]),
        ({}, {"size": "3,x,3"}, 12, ["three whole numbers"]),
        ({}, {"size": None}, 8, ["edges 'c': size is missing"]),
        ({}, {"input": None}, 8, ["input is missing"]),
        ({}, {"init": "xaver"}, 13, ["mean 'xavier'?"]),
        ({}, {"init": "uniform", "init_args": "a,b"}, 14, ["numbers"]),
        ({}, {"init": "uniform", "init_args": "2,1"}, 14, ["low,high"]),
        ({}, {"init": "uniform", "init_args": "1,2,3"}, 14, ["1 or 2 numbers"]),
        ({}, {"init": "constant", "init_args": "nan"}, 14, ["finite"]),
        ({}, {"init": "gaussian", "init_args": "0,-1"}, 14, ["deviation"]),
        ({}, {**BARE, "type": "dropout", "ratio": 0}, 12, ["probability to keep"]),
        ({}, {**BARE, "type": "dropout", "rato": 1}, 12, ["unknown key 'rato'", "mean 'ratio'?"]),
        ({}, {**BARE, "type": "crop", "offset": "-1,0,0"}, 12, ["three whole numbers"]),
        ({}, {**BARE, "type": "dummy", "offset": "1,1,1"}, 12, ["unknown key 'offset'"]),
        ({}, {"init": None, "type": "max_filter"}, 8, ["stride is missing"]),
        (
            {},
            {"init": None, "type": "max_pool", "stride": "2,2,2"},
            13,
            ["its size for its stride"],
        ),
        ({}, {"repeat": "2,0,2"}, 14, ["at least 1"]),
        ({}, {"weight_decay": "0.1"}, 14, ["unknown key 'weight_decay'", "training.optimizer"]),
    ],
)
def test_refused_blocks(
    node: dict[str, object], edge: dict[str, object], line: int, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        one(node, edge)
    (text,) = str(caught.value).splitlines()
    assert text.startswith(f"f.znn:{line}: ")
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no 'nodes' and 'edges'"),
        ("type input\n", "f.znn:1: 'type' stands before any"),
        ("nodes\ntype input\nsize 1\n", "f.znn:1: nodes: a name must follow"),
        ("node in\ntype input\nsize 1\n", "f.znn:1: unknown key 'node'; did you mean 'nodes'?"),
    ],
)
def test_refused_texts(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_znn(text, "f.znn")
    assert words in str(caught.value)


def test_all_problems_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        one({"size": "x"}, {"size": "y"})
    assert len(str(caught.value).splitlines()) == 2


def test_graph_errors_name_the_line() -> None:
    with pytest.raises(NetworkError, match=r"^f.znn:8: edge 'c': to 'outt' is no node; .*'out'\?"):
        one(edge={"output": "outt"})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "big.znn").write_bytes(b"#" * (2**20 + 1))
    (tmp_path / "raw.znn").write_bytes(b"\xff\xfe")
    for name, words in [("none", "No such file"), ("big", "1 MiB"), ("raw", "not text")]:
        with pytest.raises(ConfigError, match=words):
            load_network(tmp_path / f"{name}.znn")
