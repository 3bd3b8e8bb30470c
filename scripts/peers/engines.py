"""ONNX Runtime and OpenVINO as contestants: forward passes of a network that PyTorch exports."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from peers.cases import Case
from peers.contestants import Torch
from peers.ours import Arrays, Contestant, output_results


class _Engine:
    """A runtime with the sample of a case; `call` takes an image to the output."""

    def __init__(self, peer: Torch, call: Callable[[Any], Any]) -> None:
        self.peer, self.call = peer, call
        self.image = peer.input.contiguous().numpy()

    def results(self, seed: int) -> tuple[float, Arrays]:
        image = self.peer.sample(seed)[0].contiguous().numpy()
        return output_results(self.peer.shaped(self.call(image)))

    def run(self, count: int) -> None:
        for _ in range(count):
            self.call(self.image)


def _onnxruntime(file: Path, threads: int) -> Callable[[Any], Any]:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(file), settings, ["CPUExecutionProvider"])
    return lambda image: session.run(None, {"image": image})[0]


def _openvino(precision: str) -> Callable[[Path, int], Callable[[Any], Any]]:
    def made(file: Path, threads: int) -> Callable[[Any], Any]:
        import openvino

        hints = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": precision,
        }
        request = openvino.Core().compile_model(str(file), "CPU", hints).create_infer_request()
        return lambda image: request.infer({"image": image})[0]

    return made


ENGINES: Mapping[str, tuple[str, Callable[[Path, int], Callable[[Any], Any]]]] = {
    "onnxruntime": ("onnxruntime", _onnxruntime),
    "openvino": ("openvino", _openvino("f32")),
    "openvino-bfloat16": ("openvino", _openvino("bf16")),
}
"""Their libraries, and how each is made of an exported network for so many threads."""
EXACT = ("onnxruntime", "openvino")
"""Those that compute in float32."""


def engines(
    case: Case, parameters: Arrays, names: list[str], threads: int, folder: Path
) -> dict[str, Contestant]:
    """Those whose libraries can be imported here, with the same weights."""
    there = [name for name in names if importlib.util.find_spec(ENGINES[name][0])]
    if not (there and importlib.util.find_spec("onnxscript")):
        return {}
    peer, file = Torch(case, parameters, "contiguous"), folder / "net.onnx"
    torch.onnx.export(
        peer.network.eval(), (peer.input,), str(file), dynamo=True, verbose=False,
        input_names=["image"], output_names=["output"],
    )  # fmt: skip
    return {name: _Engine(peer, ENGINES[name][1](file, threads)) for name in there}
