"""One contestant with one U-Net in a process of its own, so that its peak memory is its own.

Started by `bench_peers.py --unets`; what it does is in `peers/processes.py`.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from peers.processes import Obedient, obey, peak
from peers.unet_nets import NETS, Arrays, Net

LEARNING_RATE, MOMENTUM = 0.01, 0.9


class Znnpy:
    """znnpy through its public interface."""

    def __init__(self, net: Net, options: argparse.Namespace) -> None:
        import znnpy

        network = net.network if options.training else net.deployed
        given = net.parameters()

        def model(net: Net, plan: Any = None) -> znnpy.Model:
            made = znnpy.Model(
                network,
                output_shape=net.output_shapes(network, small=options.small),
                threads=options.threads,
                conv=options.conv,
                plan=plan,
                loss="square",
                optimizer=znnpy.Optimizer("sgd", momentum=MOMENTUM),
                training=options.training,
            )
            made.set_parameters({name: given[name] for name in made.parameters})
            return made

        self.training, self.small = options.training, options.small
        self.model, self.net = model(net), net
        self.image, self.targets = self._sample(net, 0)
        # By the algorithms that are timed.
        self.compared = net.as_compared(training=options.training)
        self.like = partial(model, self.compared, self.model.plan_record)

    def results(self, seed: int) -> Arrays:
        image, targets = self._sample(self.compared, seed)
        same = self.small or self.compared is self.net
        apart = nullcontext(self.model) if same else self.like()
        with apart as model:
            if not self.training:
                return {"output": np.array(model.forward(image))}
            loss, gradients = model.loss_and_gradients(image, targets)
            return {"loss": np.array(loss), **gradients}

    def run(self, count: int) -> None:
        for _ in range(count):
            if self.training:
                self.model.step(self.image, self.targets, learning_rate=LEARNING_RATE)
            else:
                self.model.forward(self.image)
        if self.training:
            self.model.drain()

    def _sample(self, net: Net, seed: int) -> tuple[Any, Any]:
        image = net.image(seed, small=self.small)
        if not self.training:
            return image, None
        targets = net.targets(seed, small=self.small)
        return image, targets if len(targets) > 1 else targets["output"]


class Torch:
    """PyTorch in one memory format, eager or compiled (then with frozen weights for inference); or in float64."""

    def __init__(self, net: Net, options: argparse.Namespace) -> None:
        import torch

        from peers import onednn
        from peers.taps import by_taps
        from peers.unet_modules import load, made

        torch.set_num_threads(options.threads)
        torch.set_flush_denormal(True)
        self.net, self.training = net, options.training
        layout = (
            torch.channels_last_3d
            if options.format == "channels_last_3d"
            else torch.contiguous_format
        )
        if options.format == "onednn":
            torch.nn.functional.conv3d = onednn.conv3d
        self.module = made(net)
        load(self.module, net.network, net.parameters())
        self.dtype = torch.float64 if options.who == "truth" else torch.float32
        self.module.train(options.training).to(self.dtype, memory_format=layout)
        if options.who == "truth":
            by_taps(self.module)
        self.call: Any = self.module
        if options.who == "compiled":
            torch._inductor.config.freezing = not options.training
            self.call = torch.compile(self.module)
        self.layout, self.small = layout, options.small
        self.sample = self._sample(net, 0)
        self.optimizer = torch.optim.SGD(
            self.module.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, fused=True
        )

    def results(self, seed: int) -> Arrays:
        from peers.unet_modules import gradients

        image, targets = self._sample(self.net.as_compared(training=self.training), seed)
        if not self.training:
            return {"output": self._forward(image).numpy()}
        loss = self._backward(image, targets)
        names = self.net.parameters()
        return {"loss": np.array(loss), **gradients(self.module, self.net.network, names)}

    def run(self, count: int) -> None:
        for _ in range(count):
            if self.training:
                self._backward(*self.sample)
                self.optimizer.step()
            else:
                self._forward(self.sample[0])

    def _sample(self, net: Net, seed: int) -> tuple[Any, list[Any]]:
        import torch

        arrays = [net.image(seed, small=self.small)]
        if self.training:
            arrays += net.targets(seed, small=self.small).values()
        image, *targets = (
            torch.from_numpy(a).to(self.dtype, memory_format=self.layout) for a in arrays
        )
        return image, targets

    def _forward(self, image: Any) -> Any:
        import torch

        with torch.no_grad():
            return self.call(image)

    def _backward(self, image: Any, targets: list[Any]) -> float:
        from torch.nn import functional

        self.optimizer.zero_grad()
        outputs = self.call(image)
        outputs = outputs if isinstance(outputs, list) else [outputs]
        pairs = zip(outputs, targets, strict=True)
        loss = sum(functional.mse_loss(output, target) for output, target in pairs)
        loss.backward()
        return float(loss.item())


class OnnxRuntime:
    """ONNX Runtime with an exported net."""

    def __init__(self, net: Net, options: argparse.Namespace) -> None:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        settings.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            str(options.onnx), settings, providers=["CPUExecutionProvider"]
        )
        self.net, self.small = net, options.small
        self.image = net.image(small=options.small)

    def results(self, seed: int) -> Arrays:
        return {"output": self._forward(self.net.image(seed, small=self.small))}

    def run(self, count: int) -> None:
        for _ in range(count):
            self._forward(self.image)

    def _forward(self, image: Any) -> Any:
        return self.session.run(None, {"image": image})[0]


class OpenVino:
    """OpenVINO with an exported net, in float32 or, where the processor has it, bfloat16."""

    def __init__(self, net: Net, options: argparse.Namespace) -> None:
        import openvino

        core = openvino.Core()
        hints = {
            "INFERENCE_NUM_THREADS": options.threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if options.who == "openvino-bfloat16" else "f32",
        }
        self.request = core.compile_model(str(options.onnx), "CPU", hints).create_infer_request()
        self.net, self.small = net, options.small
        self.image = net.image(small=options.small)

    def results(self, seed: int) -> Arrays:
        return {"output": np.array(self._forward(self.net.image(seed, small=self.small)))}

    def run(self, count: int) -> None:
        for _ in range(count):
            self._forward(self.image)

    def _forward(self, image: Any) -> Any:
        return self.request.infer({"image": image})[0]


Maker = Callable[[Net, argparse.Namespace], Obedient]
WHO: dict[str, tuple[Maker, str]] = {
    "znnpy": (Znnpy, "znnpy"),
    "torch": (Torch, "torch"),
    "compiled": (Torch, "torch"),
    "truth": (Torch, "torch"),
    "onnxruntime": (OnnxRuntime, "onnxruntime"),
    "openvino": (OpenVino, "openvino"),
    "openvino-bfloat16": (OpenVino, "openvino"),
}
"""How each is made, and its library."""


def export(net: Net, options: argparse.Namespace) -> None:
    """Write the net, as it predicts, to `options.onnx`."""
    import torch

    from peers.unet_modules import load, made

    module = made(net)
    load(module, net.network, net.parameters())
    image = net.image(small=options.small)
    names = {"input_names": ["image"], "output_names": ["output"]}
    module.eval()
    torch.onnx.export(module, (torch.from_numpy(image),), str(options.onnx), dynamo=True, **names)


def main() -> None:
    """Obey until the input ends."""
    options = _options()
    net = NETS[options.net].smoothed() if options.smooth else NETS[options.net]
    if options.who == "export":
        export(net, options)
        return
    maker, library = WHO[options.who]
    importlib.import_module(library)
    before = peak()
    obey(maker(net, options), before)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("who", choices=[*WHO, "export"])
    parser.add_argument("net", choices=list(NETS))
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--smooth", action="store_true")
    parser.add_argument(
        "--format", choices=["contiguous", "onednn", "channels_last_3d"], default="contiguous"
    )
    parser.add_argument("--conv", default="auto")
    parser.add_argument("--onnx", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
