"""What losses make of the functions of outputs: which they apply themselves, refuse, or warn about."""

from dataclasses import replace

import pytest

from znnpy.errors import NetworkError
from znnpy.network import doubtful_outputs, load_network, logits_network, objectives
from znnpy.network.types import Edge, Network, Node


def net(function, images=2):
    conv = {"channels": images, "size": 1, "function": function}
    return load_network({"layers": [{"conv": {"channels": 3, "size": 1}}, {"conv": conv}]})


@pytest.mark.parametrize(
    ("loss", "function"),
    [
        ("binomial_cross_entropy", "logistic"),
        ("binomial_cross_entropy", "forward_logistic"),
        ("softmax", "softmax"),
    ],
)
def test_a_loss_applies_its_own_functions(loss, function):
    found = logits_network(net(function), loss)
    assert found.outputs[0].shown == function
    assert [replace(node, shown=None) for node in found.nodes] == list(net("linear").nodes)
    assert objectives(found, loss) == objectives(net(function), loss)
    assert not doubtful_outputs(net(function), loss)


@pytest.mark.parametrize("loss", ["square", "binomial_cross_entropy", "softmax"])
def test_other_outputs_stay_as_they_are(loss):
    for function in ("linear", "leaky_relu", "tanh", "relu"):
        network = net(function)
        assert logits_network(network, loss) is network
    assert not doubtful_outputs(net("linear"), loss) + doubtful_outputs(net("leaky_relu"), loss)


@pytest.mark.parametrize(
    ("loss", "function", "words"),
    [
        ("binomial_cross_entropy", "softmax", "'output'.* softmax, which fits loss softmax"),
        ("softmax", "logistic", "'output'.* logistic, which fits loss binomial_cross_entropy"),
        ("softmax", "forward_logistic", "the function softmax or linear"),
    ],
)
def test_functions_of_another_loss_are_refused(loss, function, words):
    with pytest.raises(NetworkError, match=words):
        logits_network(net(function), loss)


@pytest.mark.parametrize(
    ("loss", "function", "right"),
    [
        ("binomial_cross_entropy", "tanh", "should be linear or logistic"),
        ("binomial_cross_entropy", "relu", "should be linear or logistic"),
        ("softmax", "elu", "should be linear or softmax"),
        ("square", "logistic", "linear; logistic goes with loss binomial_cross_entropy"),
        ("square", "softmax", "linear; softmax goes with loss softmax"),
        ("square", "tanh", "should be linear"),
        ("square", "forward_logistic", "passes gradients on unchanged"),
    ],
)
def test_functions_that_hinder_training_are_named_with_what_would_be_right(loss, function, right):
    (line,) = doubtful_outputs(net(function), loss)
    assert line.startswith(f"output 'output' shows the function {function}, ")
    assert right in line


def test_a_function_is_seen_through_what_follows_it():
    nodes = (Node("in", "input", 1), Node("a", "transfer", 1, "logistic"), Node("out", "sum", 1))
    edges = (Edge("c", "conv", "in", "a"), Edge("d", "crop", "a", "out"))
    (line,) = doubtful_outputs(Network(nodes, edges), "binomial_cross_entropy")
    assert line.startswith("output 'out' shows the function logistic of node 'a'")
    assert line.endswith("it should be linear")
