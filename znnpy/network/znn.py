"""Reads ZNN's network files (.znn): blocks of `key value` lines that start with `nodes` or `edges`.

The rules are ZNN's: of each line the first two words count and the rest is a comment, as are lines that start with
`#`; the last value of a key wins. A key is honoured or refused; only keys that ZNN itself ignores (`UNREAD`) are
ignored here. The stride of a max_filter or conv edge dilates what follows (`sparsens`), max_pool has a true stride,
`ratio` of a dropout edge is the probability to keep. In ZNN nodes and edges have separate name spaces; where both
use one name, the edge gets the suffix `_edge`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, assert_never

from znnpy.errors import ConfigError
from znnpy.layers.activation_functions import FunctionName
from znnpy.network.check import checked_network
from znnpy.network.types import Edge, Init, Network, Node, NodeKind, Triple

# A network of hundreds of layers has some ten thousand bytes; a volume given by mistake is refused before it is read.
MOST_BYTES = 2**20
FUNCTIONS: dict[str, FunctionName] = {
    "linear": "linear",
    "rectify_linear": "relu",
    "tanh": "tanh",
    "logistics": "logistic",
    "forward_logistics": "forward_logistic",
    "elu": "elu",
    "soft_sign": "soft_sign",
}
NODE_KINDS: dict[str, NodeKind] = {
    "input": "input",
    "transfer": "transfer",
    "sum": "sum",
    "maxout": "max",
}
ZnnKind = Literal["conv", "max_filter", "max_pool", "dropout", "crop"]
EDGE_KINDS: dict[str, ZnnKind] = {
    "conv": "conv",
    "max_filter": "max_filter",
    "max_pool": "max_pool",
    "dropout": "dropout",
    "crop": "crop",
    "dummy": "crop",
    "maxout": "crop",
}
INITS = ("zero", "constant", "uniform", "gaussian", "normalized", "xavier", "msra", "normal", "he")
SHAPING = ("function", "function_args", "init", "init_args")
# Keys that are honoured, by type of block.
KEYS: dict[str, tuple[str, ...]] = {
    "input": ("type", "size", "dense"),
    "sum": ("type", "size", "dense"),
    "maxout": ("type", "size", "dense"),
    "transfer": ("type", "size", "dense", *SHAPING),
    "conv": ("type", "input", "output", "size", "stride", "sparse", "repeat", "init", "init_args"),
    "max_filter": ("type", "input", "output", "size", "stride"),
    "max_pool": ("type", "input", "output", "size", "stride"),
    "dropout": ("type", "input", "output", "ratio"),
    "crop": ("type", "input", "output", "offset"),
    "dummy": ("type", "input", "output"),
}
# Keys in ZNN's own files that change no network: it reads a function and an init of transfer nodes alone; `fft`
# chooses how it computes, `load` and `seeding` whether it takes weights from another network.
_OTHERS = {"input": SHAPING, "sum": SHAPING, "maxout": SHAPING, "conv": ("fft",)}
UNREAD: dict[str, tuple[str, ...]] = {
    kind: ("load", "seeding", *_OTHERS.get(kind, ())) for kind in KEYS
}
ALL_KEYS = sorted({key for keys in KEYS.values() for key in keys})
ELSEWHERE = {
    "eta": "the config says it, in training.learning_rate",
    "momentum": "the config says it, in training.optimizer",
    "weight_decay": "the config says it, in training.optimizer",
    "filters": "weights of ZNN are not read",
    "biases": "weights of ZNN are not read",
    "sparse": "changing the sparsity at a node is not supported",
}


@dataclass
class Block:
    """One `nodes` or `edges` block of a file: values and line numbers by key."""

    group: str
    name: str
    line: int
    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


class _BlockError(Exception):
    """One problem of a block; `key` is the key that has it."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


def read_znn(path: str | Path) -> Network:
    """Return the network of a .znn file; ConfigError or NetworkError lists all problems of its text or graph."""
    return parse_znn(_text(Path(path)), str(path))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"{path}: is larger than 1 MiB; that is no network file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text") from None


def parse_znn(text: str, file: str = "network.znn") -> Network:
    """Return the network of a .znn file's text; errors name it `file`. Raises as `read_znn` does."""
    blocks, problems = _blocks(text, file)
    names = {block.name for block in blocks if block.group == "nodes"}
    nodes: list[Node] = []
    edges: list[Edge] = []
    lines: dict[str, int] = {}
    for block in blocks:
        wrong = _unknown(block)
        try:
            if block.group == "nodes":
                nodes.append(_node(block))
                lines.setdefault(block.name, block.line)
            else:
                name = block.name + "_edge" if block.name in names else block.name
                edges.append(_edge(block, name))
                lines.setdefault(name, block.line)
        except _BlockError as error:
            wrong[error.key] = str(error)
        for key, text in wrong.items():
            line = block.lines.get(key, block.line)
            problems.append(f"{file}:{line}: {block.group} '{block.name}': {text}")
    if problems:
        raise ConfigError("\n".join(problems))
    return checked_network(
        nodes, edges, lambda name: f"{file}:{lines[name]}" if name in lines else file
    )


def _blocks(text: str, file: str) -> tuple[list[Block], list[str]]:
    blocks: list[Block] = []
    problems = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        key, value = words[0], words[1] if len(words) > 1 else ""
        if key in ("nodes", "edges"):
            if not value or value.startswith("#"):
                problems.append(f"{file}:{number}: {key}: a name must follow")
            blocks.append(Block(key, value, number))
        elif key in ("node", "edge"):
            problems.append(f"{file}:{number}: unknown key '{key}'; did you mean '{key}s'?")
            blocks.append(Block(key + "s", value, number))
        elif not blocks:
            problems.append(f"{file}:{number}: '{key[:40]}' stands before any 'nodes' or 'edges'")
            break
        else:
            blocks[-1].values[key] = value
            blocks[-1].lines[key] = number
    if not blocks and not problems:
        problems.append(f"{file}: holds no 'nodes' and 'edges'")
    return blocks, problems


def _unknown(block: Block) -> dict[str, str]:
    """Yield what is wrong with each key that a block of its type does not take; nothing if it has no type."""
    kind = block.values.get("type", "")
    # Edges that lead to maxout nodes have their type, and pass feature maps on as a dummy does.
    alike = "dummy" if (block.group, kind) == ("edges", "maxout") else kind
    known = KEYS.get(alike, tuple(block.values))
    found = {}
    for key in block.values.keys() - {*known, *UNREAD.get(alike, ())}:
        near = get_close_matches(key, known, n=1, cutoff=0.8)
        hint = f"did you mean '{near[0]}'?" if near else ELSEWHERE.get(key, "")
        takes = f"{kind} takes {', '.join(known)}"
        found[key] = f"unknown key '{key[:40]}'; {hint or takes}"
    return dict(sorted(found.items(), key=lambda item: block.lines[item[0]]))


def _word(block: Block, key: str, allowed: Iterable[str]) -> str:
    words = list(allowed)
    value = _required(block, key)
    if value not in words:
        near = get_close_matches(value, words, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise _BlockError(f"{key} is '{value}'{hint} (allowed: {', '.join(words)})", key)
    return value


def _required(block: Block, key: str) -> str:
    if not block.values.get(key):
        near = get_close_matches(key, block.values.keys() - set(ALL_KEYS), n=1)
        hint = f"; did you mean it by '{near[0]}'?" if near else ""
        raise _BlockError(f"{key} is missing{hint}", near[0] if near else key)
    return block.values[key]


def _numbers(block: Block, key: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise _BlockError(
            f"{key} must be numbers with commas between; found '{text}'", key
        ) from None
    if not all(map(math.isfinite, numbers)):
        raise _BlockError(f"{key} must be finite numbers; found '{text}'", key)
    return numbers


def _triple(block: Block, key: str, default: str | None = None, least: int = 1) -> Triple:
    text = block.values.get(key) or default or _required(block, key)
    if not re.fullmatch(r"\+?\d{1,6},\+?\d{1,6},\+?\d{1,6}", text):
        raise _BlockError(f"{key} must be three whole numbers z,y,x; found '{text}'", key)
    z, y, x = map(int, text.split(","))
    if min(z, y, x) < least:
        raise _BlockError(f"{key} must be at least {least} along z, y and x; found '{text}'", key)
    return (z, y, x)


def _node(block: Block) -> Node:
    kind = NODE_KINDS[_word(block, "type", NODE_KINDS)]
    size = _required(block, "size")
    if not re.fullmatch(r"\+?\d{1,5}", size) or not 1 <= int(size) <= 2**16:
        raise _BlockError(
            f"size, the number of channels, must be 1 to 65536; found '{size}'", "size"
        )
    if block.values.get("dense", "0") != "0":
        raise _BlockError("dense: changing the sparsity at a node is not supported", "dense")
    if kind != "transfer":
        return Node(block.name, kind, int(size), bias=False)
    function = FUNCTIONS[_word(block, "function", FUNCTIONS)]
    init = _init(block, "zero")
    if init.kind in ("he", "xavier"):
        raise _BlockError("init of biases is zero, constant, uniform or gaussian", "init")
    shape = _shape(block, function)
    return Node(block.name, kind, int(size), function, bias=True, init=init, **shape)


def _shape(block: Block, function: FunctionName) -> dict[str, Any]:
    """Return the numbers of function_args; ZNN reads them for tanh, elu and linear alone."""
    text = block.values.get("function_args")
    if function == "tanh":
        amplitude, gain = _arguments(block, text or "1,1", 2, 2, "function_args")
        if 0 in (amplitude, gain):
            raise _BlockError(
                f"function_args of tanh must not be 0; found '{text}'", "function_args"
            )
        return {"amplitude": amplitude, "gain": gain}
    if function == "elu":
        alpha = _arguments(block, text or "1", 1, 1, "function_args")[0]
        if alpha < 0:
            fits = "function_args of elu must be at least 0"
            raise _BlockError(f"{fits}; found '{text}'", "function_args")
        return {"slope": alpha}
    if function == "linear":
        numbers = _arguments(block, text or "1,0", 1, 2, "function_args")
        if numbers not in ([1], [1, 0]):
            fits = "linear with a factor or an offset is not supported; 1,0 is"
            raise _BlockError(f"function_args: {fits}; found '{text}'", "function_args")
    return {}


def _init(block: Block, default: str) -> Init:
    if "init" not in block.values:
        block.values["init"] = default
    kind = _word(block, "init", INITS)  # zero, xavier and msra do not read their init_args in ZNN
    text = block.values.get("init_args", "")
    match kind:
        case "zero":
            return Init("constant", value=0.0)
        case "constant":
            return Init("constant", value=_arguments(block, _required(block, "init_args"), 1, 1)[0])
        case "uniform":
            ends = _arguments(block, text or "-0.1,0.1", 1, 2)
            low, high = (-ends[0], ends[0]) if len(ends) == 1 else (ends[0], ends[1])
            if low > high:
                raise _BlockError(f"init_args must be low,high; found '{text}'", "init_args")
            return Init("uniform", low=low, high=high)
        case "gaussian" | "normal":
            mean, std = _arguments(block, text or "0,0.01", 2, 2)
            if std < 0:
                raise _BlockError(f"init_args must be mean,deviation; found '{text}'", "init_args")
            return Init("normal", mean=mean, std=std)
        case "xavier" | "normalized":
            return Init("xavier")
    return Init("he")


def _arguments(
    block: Block, text: str, least: int, most: int, key: str = "init_args"
) -> list[float]:
    numbers = _numbers(block, key, text)
    if not least <= len(numbers) <= most:
        count = str(least) if least == most else f"{least} or {most}"
        raise _BlockError(f"{key} needs {count} numbers; found '{text}'", key)
    return numbers


def _edge(block: Block, name: str) -> Edge:
    word = _word(block, "type", EDGE_KINDS)
    kind, ends = EDGE_KINDS[word], (_required(block, "input"), _required(block, "output"))
    match kind:
        case "conv":
            size, sparsens = _triple(block, "size"), _triple(block, "stride", "1,1,1")
            return Edge(
                name,
                kind,
                *ends,
                size=size,
                sparsity=_triple(block, "sparse", "1,1,1"),
                sparsens=sparsens,
                init=_init(block, "uniform"),
                repeat=_triple(block, "repeat", "1,1,1"),
            )
        case "max_filter":
            size = _triple(block, "size")
            return Edge(name, kind, *ends, size=size, sparsens=_triple(block, "stride"))
        case "max_pool":
            size = _triple(block, "size")
            stride = _triple(block, "stride", ",".join(map(str, size)))
            if stride != size:
                raise _BlockError(
                    "ZNN's max_pool has its size for its stride; found another", "stride"
                )
            return Edge(name, kind, *ends, size=size, stride=stride)
        case "dropout":
            return Edge(name, kind, *ends, keep=_ratio(block))
        case "crop":
            if word in ("dummy", "maxout"):
                return Edge(name, kind, *ends)
            return Edge(name, kind, *ends, offset=_triple(block, "offset", least=0))
        case _:
            assert_never(kind)


def _ratio(block: Block) -> float:
    text = block.values.get("ratio") or "0.5"
    numbers = _numbers(block, "ratio", text)
    if len(numbers) != 1 or not 0 < numbers[0] <= 1:
        raise _BlockError(f"ratio, the probability to keep, is in (0, 1]; found '{text}'", "ratio")
    return numbers[0]
