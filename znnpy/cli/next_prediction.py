"""Suggests to predict with a run, as its network is to be asked: by which node, of which inputs, into which file."""

from __future__ import annotations

from pathlib import Path

from znnpy.cli.global_options import suggest


def suggest_predict(run: Path, image: str = "IMAGE", output: str = "prediction.h5") -> None:
    """Print `znnpy predict` for a run directory: with --node where there are several outputs, inputs by their names.

    The node is the first that learns no shape descriptors, which only help the others. Scans that the run prepares
    become labels, `labels.nii.gz`.
    """
    from znnpy.config import load_config
    from znnpy.geometry.finest_outputs import finest
    from znnpy.network import build_network
    from znnpy.train.run_directory import CONFIG

    config = load_config(run / CONFIG)
    network = finest(build_network(config.network))
    inputs, outputs = network.inputs, [node.name for node in network.outputs]
    images = [image] if len(inputs) == 1 else [f"{node.name}={image}" for node in inputs]
    words = [word for it in images for word in ("--input", it)]
    if config.data.prepare is not None:
        output = "labels.nii.gz"
    if len(outputs) > 1:
        shown = [name for name in outputs if config.target(name).kind != "lsd"]
        words += ["--node", (shown or outputs)[0]]
    suggest("predict", run, *words, "--output", output)
