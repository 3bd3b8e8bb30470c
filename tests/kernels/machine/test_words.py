"""Argument words are read by their names: nobody counts them."""

import ast
from pathlib import Path

import pytest
import znnpy_kernels
from znnpy_kernels.machine.abi import declared, kernel, words

SOURCES = sorted(Path(znnpy_kernels.__file__).parent.rglob("*.py"))
NUMBERED = {"args", "words", "piece", "product", "given"}


def numbered(source):
    """Lines that read a word of a kernel, or of what its helpers share, by its number."""
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
    compiled = [f for f in functions if not {"context", "typingctx", "typing"} & names(f)]
    return [
        node.lineno
        for function in compiled
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in NUMBERED & names(function)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, int)
    ]


def names(function):
    return {argument.arg for argument in function.args.args}


def test_no_kernel_reads_words_by_number():
    found = {path.name: lines for path in SOURCES if (lines := numbered(path.read_text()))}
    assert not found


def test_a_number_would_be_found():
    assert numbered("def copy(args, worker):\n    return args[0] + args[AT.count]\n") == [2]


def test_words_of_another_kernel_come_first_and_keep_their_kinds():
    first = words("source scale:float")
    both = words(first, "count factor:float")
    assert both._fields == ("source", "scale", "count", "factor")
    assert both.floats == {"scale", "factor"}
    assert declared(both) == ["source", "scale:float", "count", "factor:float"]
    assert tuple(both) == (0, 1, 2, 3)


@pytest.mark.parametrize("order", ["source count target", "target source count"])
def test_order_does_not_matter(order):
    made = kernel(words(order))(lambda args, worker: None)
    block = made.arguments(source=1, target=2, count=3)
    assert [block[getattr(made.words, name)] for name in ("source", "target", "count")] == [1, 2, 3]


def test_a_word_twice_is_refused():
    with pytest.raises(ValueError, match="count"):
        words("count source count")
