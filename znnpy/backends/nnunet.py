"""The network of nnU-Net's own predictor, computed here: all else of its inference stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from znnpy.backends.arrays_of import array_of
from znnpy.backends.shaped_models import ComputedHere, ShapedModels
from znnpy.errors import ArgumentError, ModelFileError
from znnpy.geometry.finest_outputs import finest
from znnpy.interop.described import Described
from znnpy.interop.nnunet.architecture import Architecture
from znnpy.interop.nnunet.labels import Labels
from znnpy.interop.nnunet.plans import Plans
from znnpy.interop.nnunet.weights import placed
from znnpy.network import load_network
from znnpy.network.parameters import parameter_shapes

_CONFIGURATION = "its configuration"  # a predictor keeps it without its name


def replace_network(predictor: Any, *, threads: int | None = None) -> None:
    """Let an initialised `nnUNetPredictor` compute its network here, for all its folds; nothing else of it changes.

    `threads`: workers, all cores if not given. Raises ArgumentError for a predictor that has no model yet,
    ModelFileError for architectures and weights that are not supported, by name; it is as before then.
    """
    parts = ("plans_manager", "configuration_manager", "dataset_json", "list_of_parameters")
    if any(getattr(predictor, part, None) is None for part in parts):
        raise ArgumentError(
            "an nnUNetPredictor with a model is needed: call initialize_from_trained_model_folder() before"
        )
    # What it inherits is in it already.
    configuration = {**predictor.configuration_manager.configuration, "inherits_from": None}
    plans = Plans.of(
        Described(
            {**predictor.plans_manager.plans, "configurations": {_CONFIGURATION: configuration}},
            "the predictor's plans",
        ),
        _CONFIGURATION,
    )
    labels = Labels.of(Described(predictor.dataset_json, "the predictor's dataset"))
    network = NnunetNetwork(Architecture.of(plans.architecture()), labels, threads)
    for state in predictor.list_of_parameters:
        network.load_state_dict(state)
    predictor.network = network


class NnunetNetwork(ComputedHere):
    """What `nnUNetPredictor` calls as its network: tensors in and out, the weights of a fold by `load_state_dict`."""

    def __init__(self, architecture: Architecture, labels: Labels, threads: int | None) -> None:
        self._architecture = architecture
        self._whole = load_network({"unet": architecture.unet(labels.channels, labels.heads)})
        super().__init__(ShapedModels(finest(self._whole), loss="square", threads=threads))

    def __call__(self, patch: Any) -> Any:
        """Return the logits (n, k, z, y, x) of a patch, of a flat network without z, as a tensor like the patch."""
        return self._models.like(patch)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the weights of a checkpoint, by nnU-Net's names; ModelFileError names what differs."""
        arrays = {}
        for name, value in state.items():
            try:
                arrays[name], _ = array_of(value)
            except ArgumentError as error:
                raise ModelFileError(f"the predictor: {name} is no tensor") from error
        found = placed(arrays, "the predictor", self._architecture, self._whole)
        self._models.set_members(
            [{name: found[name] for name in parameter_shapes(self._models.network)}]
        )
