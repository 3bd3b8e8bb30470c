"""A network for patches of any size: a model for each size that is met, of which the last few are kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from znnpy.backends.arrays_of import array_of
from znnpy.closing import Closing
from znnpy.engine import Hardware, Model
from znnpy.errors import ConfigError, ShapeError
from znnpy.geometry import fit_input
from znnpy.infer.forward_costs import lean_plan
from znnpy.network.types import Network, Triple

Floats = NDArray[np.float32]
KEPT = 2  # sizes whose memory is held: windows of one size, and the odd one at an end


class ShapedModels(Closing):
    """Runs patches (n, c, z, y, x) of any possible size, sample by sample; the mean of members where there are some.

    `settings`: of `Model`. Of networks with one input; ConfigError for others.
    """

    def __init__(
        self,
        network: Network,
        members: Sequence[Mapping[str, Any]] = (),
        *,
        precision: str = "float32",
        **settings: Any,
    ) -> None:
        if len(network.inputs) != 1:
            names = ", ".join(node.name for node in network.inputs)
            raise ConfigError(f"one patch is given at a time, and the network has inputs {names}")
        self.network, self.members = network, list(members)
        self._precision, self._settings = precision, settings
        self._models: OrderedDict[Triple, Model] = OrderedDict()

    def set_members(self, members: Sequence[Mapping[str, Any]]) -> None:
        """Take other weights from now on: of a member, or of several, whose values are averaged."""
        self.members = list(members)
        for model in self._models.values():
            model.set_parameters(self.members[0])

    def like(self, patches: Any, *, probabilities: bool = False) -> Any:
        """Return values of the kind that was given, array or tensor, with or without z; a dict of several outputs.

        `patches` (n, c, z, y, x), or (n, c, y, x) of a flat network. Raises ShapeError and ArgumentError for others.
        """
        array, back = array_of(patches)
        flat = array.ndim == 4
        found = self(array[:, :, None] if flat else array, probabilities=probabilities)
        made = {name: back(it[:, :, 0] if flat else it) for name, it in found.items()}
        return made if len(made) > 1 else next(iter(made.values()))

    def __call__(self, patches: NDArray[Any], *, probabilities: bool = False) -> dict[str, Floats]:
        """Return values (n, k, z, y, x) by output node; `probabilities`: after what the loss implies.

        Raises ShapeError for sizes that the network does not take, with the nearest that it does.
        """
        channels = self.network.inputs[0].channels
        if patches.ndim != 5 or patches.shape[1] != channels or not patches.size:
            raise ShapeError(
                f"patches must be (n, {channels}, z, y, x), or without z; found shape {patches.shape}"
            )
        model = self._model(patches.shape[2:])
        total: dict[str, Floats] = {}
        for number, weights in enumerate(self.members):
            if len(self.members) > 1:
                model.set_parameters(weights)
            for name, values in self._run(model, patches, probabilities).items():
                total[name] = values if number == 0 else total[name] + values
        share = np.float32(len(self.members))
        return total if share == 1 else {name: values / share for name, values in total.items()}

    def close(self) -> None:
        """Free the memory of all sizes."""
        while self._models:
            self._models.popitem()[1].close()

    def _run(self, model: Model, patches: NDArray[Any], probabilities: bool) -> dict[str, Floats]:
        run = model.predict if probabilities else model.forward
        names = [node.name for node in self.network.outputs]
        found: dict[str, list[Any]] = {name: [] for name in names}
        for patch in patches:
            values = run(np.ascontiguousarray(patch[None], np.float32))
            by_name = values if isinstance(values, dict) else {names[0]: values}
            for name, value in by_name.items():
                found[name].append(value)
        return {name: np.concatenate(values).astype(np.float32) for name, values in found.items()}

    def _model(self, shape: tuple[int, ...]) -> Model:
        z, y, x = shape
        size: Triple = (z, y, x)
        if size in self._models:
            self._models.move_to_end(size)
            return self._models[size]
        geometry = fit_input(self.network, size)
        while len(self._models) >= KEPT:
            self._models.popitem(last=False)[1].close()
        plan = lean_plan(self.network, geometry, self._settings.get("conv", "auto"))
        model = Model(
            self.network,
            geometry.output_shapes,
            plan=plan.to_record(),
            training=False,
            hardware=Hardware(precision=self._precision),  # type: ignore[arg-type]
            **self._settings,
        )
        if model.input_shape != size:
            model.close()
            raise ShapeError(
                f"patches of {size} voxels (z, y, x) are not possible; {model.input_shape} are, with the same output"
            )
        model.set_parameters(self.members[0])
        self._models[size] = model
        return model


class ComputedHere(Closing):
    """What other programs take for a PyTorch module that predicts, whose `models` compute."""

    def __init__(self, models: ShapedModels) -> None:
        self._models = models

    def eval(self) -> Self:
        """Return it as it is: it never trains."""
        return self

    def to(self, *_: Any, **__: Any) -> Self:
        """Return it as it is: it computes here, and results go where patches came from."""
        return self

    def close(self) -> None:
        """Free memory and threads."""
        self._models.close()
