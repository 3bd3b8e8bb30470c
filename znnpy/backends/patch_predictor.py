"""The network of a run as a function of patches, as MONAI's inferers and other programs call a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from znnpy.backends.shaped_models import ComputedHere, ShapedModels
from znnpy.interop.run import run_of
from znnpy.network import losses_of
from znnpy.train.members import members_of
from znnpy.train.progress import Notes
from znnpy.train.start import Which, read_run


class PatchPredictor(ComputedHere):
    """Calls the network of a run, or of another program's model (as `znnpy import` takes), on patches.

    Patches are arrays or tensors (n, c, z, y, x), or (n, c, y, x) of a flat network, already normalised; whoever calls
    cuts, normalises and blends. `probabilities`: False: logits, before a logistic or softmax at the output, whether the
    network has it itself or its loss implies it; True: after it. `threads`: workers, all cores if not given.
    `checkpoint`: as of `open_run`. Of several members (nnU-Net's folds) the mean. For one thread at a time.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        probabilities: bool = False,
        threads: int | None = None,
        checkpoint: Which = "latest",
    ) -> None:
        with run_of(Path(run).expanduser()) as path:
            saved = read_run(path, Notes(), which=checkpoint, states=False)
            members = [read() for read in members_of(saved)]
        weights, training = saved.weights, saved.config.training
        self.probabilities, self._config = probabilities, saved.config
        super().__init__(
            ShapedModels(
                weights.network,
                members,
                precision=training.precision,
                conv=training.conv,
                loss=losses_of(saved.config, weights.network),
                threads=saved.config.run.threads if threads is None else threads,
            )
        )

    @property
    def channels(self) -> int:
        """The number of channels that patches have."""
        return self._models.network.inputs[0].channels

    @property
    def normalised(self) -> str:
        """The key by which the run normalises images to other values than 0 to 1; "" if it does not."""
        data = self._config.data
        if data.prepare is not None:
            return "data.prepare"
        kind = data.normalize.kind
        return "" if kind in ("unit", "none") else f"data.normalize: {kind}"

    def __call__(self, patches: Any, *_: Any, **__: Any) -> Any:
        """Return values (n, k, z, y, x), or without z as given, of the kind that was given; a dict of several outputs.

        Raises ShapeError for sizes that the network does not take, ArgumentError for what is no array or tensor.
        """
        return self._models.like(patches, probabilities=self.probabilities)
