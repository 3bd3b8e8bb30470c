"""What mypy must refuse: words that other rooms would misread without an error.

Each case is a module that mypy checks beside the package. Lines that end in `# error: NAME` must have
an error of that name, and no other line may have any.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

CASES = {
    "a cost's part": """
        from znnpy.plan import Costs, Method

        def weight(costs: Costs) -> float:
            return costs[Method("direct")]["weight"]

        def misspelt(costs: Costs) -> float:
            return costs[Method("direct")]["wieght"]  # error: index

        def joined(costs: Costs) -> None:
            print(costs["direct weight"])  # error: index
        """,
    "a model's settings": """
        from znnpy import Hardware, Model, Training

        Model({}, 3, threads=2, training=Training(clip_norm=1.0))
        Model({}, 3, clip_norm=1.0)  # error: arg-type
        Model({}, 3, training=Training(clip=1.0))  # error: call-arg
        Model({}, 3, hardware=Hardware(precision="double"))  # error: arg-type
        Model({}, 3, hardware=Training())  # error: arg-type
        """,
    "functions that are rooms too": """
        import znnpy

        run: znnpy.Run = znnpy.train("config.yaml", overrides=["training.batch=2"])
        znnpy.train(3)  # error: arg-type
        objects: znnpy.Objects = znnpy.segment(run.predict("image.h5"), kind="boundary")
        run.predict("image.h5", borders="all")  # error: arg-type
        znnpy.segment("x.h5", kind="membrane")  # error: arg-type
        znnpy.score(objects, "labels.h5", by="voxel")  # error: arg-type
        """,
    "a pass that plans know": """
        from znnpy.plan import LayerPlan

        def methods(layer: LayerPlan) -> None:
            layer.method("gradient")
            layer.method("backward")  # error: arg-type
        """,
    "what a task is": """
        from znnpy.engine.tasks.task_identity import Identity, Kind, Part, Pass

        Identity("conv1", Pass.BACKWARD, Part.PRODUCTS)
        Identity("conv1", "backward", Part.PRODUCTS)  # error: arg-type
        Identity("conv1", Pass.BACKWARD, "products")  # error: arg-type
        Identity("conv1", Part.PRODUCTS, Pass.BACKWARD)  # error: arg-type
        Identity("conv1", Pass.GRADIENT, Part.PRODUCTS)  # error: attr-defined
        Identity("conv1", Pass.BACKWARD, Part.PRODUCT)  # error: attr-defined
        Identity("conv1", Pass.BACKWARD, Kind.PRODUCT)  # error: arg-type
        """,
    "a declared task": """
        from znnpy_kernels.machine.abi import Kernel

        from znnpy.engine.tasks.task_identity import Identity, Part, Pass
        from znnpy.engine.tasks.step import Step

        def declare(step: Step, kernel: Kernel) -> None:
            what = Identity("conv1", Pass.FORWARD, Part.DIRECT)
            step.add(kernel, {}, what=what, cost=1.0, reads=(), writes=())
            step.add(kernel, {}, what="conv1", cost=1.0, reads=(), writes=())  # error: arg-type
        """,
    "an algorithm's tasks": """
        from znnpy.engine.convolution import winograd
        from znnpy.engine.convolution.algorithm import ConvEmitter
        from znnpy.engine.convolution.passes import CONV_EMITTERS

        class Misspelt:
            forward = staticmethod(winograd.forward)
            data_gradient = staticmethod(winograd.data_gradient)
            weight_gradiant = staticmethod(winograd.weight_gradient)
            derive = staticmethod(winograd.derive)
            operations = staticmethod(winograd.operations)
            finish_forward = staticmethod(winograd.finish_forward)
            finish_backward = staticmethod(winograd.finish_backward)
            summed_elsewhere = staticmethod(winograd.summed_elsewhere)
            updates_at_once = staticmethod(winograd.updates_at_once)

        class Whole(Misspelt):
            weight_gradient = staticmethod(winograd.weight_gradient)

        class Exchanged(Whole):
            forward = staticmethod(winograd.data_gradient)  # error: assignment

        emitters: dict[str, ConvEmitter] = {"module": winograd, "class": Whole()}
        emitters["misspelt"] = Misspelt()  # error: assignment
        emitters["other module"] = winograd.passes  # error: assignment
        CONV_EMITTERS["winogard"]  # error: index
        """,
    "an algorithm as plans see it": """
        from znnpy.plan import ALGORITHMS, LayerPlan, Method
        from znnpy.plan.algorithms import Algorithm, Traits, fft, protocol

        algorithms: list[Algorithm] = [fft]
        algorithms.append(protocol)  # error: arg-type
        Traits(forward_functions=("relu", "reluu"))  # error: arg-type
        ALGORITHMS["fft"].cost  # error: attr-defined
        ALGORITHMS["winogard"]  # error: index
        Method("winogard")  # error: arg-type
        LayerPlan("direct", "direct", "winogard")  # error: arg-type
        """,
    "a layer": """
        from typing import assert_never

        from znnpy.engine.emit import EMITTERS, Emitter
        from znnpy.engine.layers import data_movement
        from znnpy.layers.data_movement import CropLayer, cropped, cropped_gradient
        from znnpy.layers.activation_functions import Function
        from znnpy.layers.edge_kind import EdgeKind
        from znnpy.layers.edge_kind import NodeKind
        from znnpy.network.types import Edge, Node

        EdgeKind(name="a", summary="", keys=CropLayer, forward=cropped)  # error: call-arg
        EdgeKind(
            name="a",
            summary="",
            keys=CropLayer,
            forward=cropped_gradient,  # error: arg-type
            data_gradient=cropped_gradient,
        )
        Function(name="a", value=lambda x, shape: x)  # error: call-arg
        EMITTERS["crop"] = Emitter(data_movement.crop_forward, data_movement.crop_backward)
        EMITTERS["corp"] = Emitter(data_movement.crop_forward, data_movement.crop_backward)  # error: index
        Emitter(data_movement.crop_forward)  # error: call-arg
        Emitter(data_movement.crop_backward, data_movement.crop_backward)  # error: arg-type
        Edge("e", "conv", "a", "b")
        Edge("e", "cnov", "a", "b")  # error: arg-type
        Node("n", "transfer", 1, "rleu")  # error: arg-type

        def is_conv(edge: Edge) -> bool:
            return edge.kind == "cnov"  # error: comparison-overlap

        def adds(kind: NodeKind) -> bool:
            match kind:
                case "sum" | "transfer":
                    return True
                case "input":
                    return False
                case _:
                    assert_never(kind)  # error: arg-type
        """,
    "what a task touches": """
        from znnpy.engine.memory.allocation import Build
        from znnpy.engine.memory.regions import Buffer, Name, Region, Use
        from znnpy.engine.tasks.buffer_sharing import gate

        TAPS = Use("taps of maxima")

        def touch(build: Build) -> None:
            taps = build.shared(Name(TAPS, "pool1", (3, (1, 2, 2))), 16)
            gate([taps.region(0, 4, section=1).key, taps.region(strand=2).key], 0)
            gate(["taps"], 0)  # error: list-item
            gate([("taps", "pool1")], 0)  # error: list-item
            Region(("taps", "pool1"), 0, 4)  # error: arg-type
            Region("taps")  # error: arg-type
            build.shared("taps", 16)  # error: arg-type
            build.shared(("taps", "pool1"), 16)  # error: arg-type
            Name("taps", "pool1")  # error: arg-type
            Name(TAPS, "pool1", ("forward",))  # error: arg-type
            Buffer(Name(TAPS), filled="outside")  # error: arg-type
            taps.region(lane=2)  # error: call-arg
        """,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[tuple[int, str]]]:
    """(line, name) of the errors of each case, all of them checked at once."""
    folder = tmp_path_factory.mktemp("cases")
    paths = {name: folder / f"case{number}.py" for number, name in enumerate(CASES)}
    for name, path in paths.items():
        path.write_text(_text(name))
    from mypy import api

    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(_cache())]
    said, problems, _ = api.run([*options, *map(str, paths.values())])
    assert not problems
    errors = re.findall(r"^(.*\.py):(\d+): error: .*\[([a-z-]+)\]$", said, re.MULTILINE)
    by_path = {path.name: name for name, path in paths.items()}
    made: dict[str, set[tuple[int, str]]] = {name: set() for name in CASES}
    for path, line, code in errors:
        made[by_path[Path(path).name]].add((int(line), code))
    return made


def _cache() -> Path:
    """The checker's own, so that what it knows of the package is used again."""
    return ROOT / ".mypy_cache"


def _text(name: str) -> str:
    return textwrap.dedent(CASES[name]).lstrip()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_checker_refuses(name: str, found: dict[str, set[tuple[int, str]]]) -> None:
    wanted = {
        (number, line.partition("# error: ")[2])
        for number, line in enumerate(_text(name).splitlines(), 1)
        if "# error: " in line
    }
    assert wanted
    assert found[name] == wanted
