"""Shows a run while it trains: takes what the loop logs, looks at weights, and has `run.html` written."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from znnpy.config.models import Config
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.layers.probabilities import probabilities
from znnpy.errors import told
from znnpy.learning.loss import Objective
from znnpy.network.parameters import learned
from znnpy.network.types import Network
from znnpy.train.display.finished import facts_of
from znnpy.train.display.history import History, read_history
from znnpy.train.display.norms import gradient_norms, weight_norms
from znnpy.train.display.page import Facts, render
from znnpy.train.display.page_writer import PageWriter
from znnpy.train.display.slices import Slices
from znnpy.train.display.tensorboard import Events
from znnpy.train.living import expected_seconds, has_relus, living_channels, share
from znnpy.train.log import Record, RunLog, drop_after
from znnpy.train.run_directory import LOOKS, PAGE, SLICES

Array = NDArray[Any]
Arrays = Mapping[str, Array]
SHARE = 0.005  # of the time of training that looks at channels may take
FREE = 0.1  # seconds that they may take in any case


class Display:
    """What is shown of a run in training; all calls are the loop's thread's. Whatever fails here is noted, once.

    `patch`: inputs by node, (1, channel, z, y, x), on whose middle channels are looked at; None: they are not.
    """

    def __init__(
        self,
        run: Path,
        facts: Facts,
        config: Config,
        network: Network,
        iteration: int,
        note: Callable[[str], None],
        patch: Arrays | None = None,
    ) -> None:
        self._run, self._facts, self._note = run, facts, note
        self._config, self._network = config, network
        self._optimizer = Optimizer.trained(config.training)
        self._patch = patch if has_relus(network) and len(network.outputs) == 1 else None
        self._lock = threading.Lock()
        self._history, self._slices = History(), Slices()
        self._looks: RunLog | None = None
        self._events: Events | None = None
        self._seen: tuple[Array, Array, Array] | None = None
        self._began, self._spent, self._last = time.monotonic(), 0.0, 0.0
        if self._patch is not None:
            self._last = expected_seconds(config, network)
        self._before, self._failed = 0.0, False
        self._state, self._training = "training", True
        self._writer = PageWriter(run / PAGE, self._page)
        with self._safe():
            drop_after(run / LOOKS, iteration)
            self._history = read_history(run, iteration)
            self._before = self._history.taken
            self._slices = Slices.read(run / SLICES, iteration)
            self._looks = RunLog(run / LOOKS)
        with self._safe():
            self._events = Events(run, iteration) if config.run.tensorboard else None

    def take(self, record: Record) -> None:
        """Show a record that was logged."""
        with self._lock:
            self._history.take(record)
        if self._events:
            with self._safe():
                self._events.take(record)
        self._show()

    def timed(self, record: Record) -> None:
        """Show a record of how long updates took."""
        with self._lock:
            self._history.timed(record)
        if self._events:
            with self._safe():
                self._events.take(record)
        self._show()

    def patch_seen(self, objective: Objective, image: Array, target: Array, values: Array) -> None:
        """Remember a patch of a validation, all (channel, z, y, x), until it is shown; `values`: of the output."""
        found = probabilities(objective.reading, values).astype("float32")
        self._seen = image, target, found

    def validated(self, iteration: int, record: Record) -> None:
        """Show a validation and its patch."""
        self.take(record)
        seen, self._seen = self._seen, None
        with self._safe():
            if seen is not None:
                with self._lock:
                    self._slices.add(iteration, *seen)
                if self._events:
                    self._events.picture(iteration, self._slices.pictures[iteration])
                self._slices.write(self._run / SLICES)

    def look(self, iteration: int, parameters: Arrays, states: Arrays) -> None:
        """Show norms of a checkpoint's weights, and its living channels where these take little of the time."""
        with self._safe():
            # Running statistics, which nobody learns, grow with the values of a net.
            weights = weight_norms({name: parameters[name] for name in learned(self._network)})
            record: Record = {"iteration": iteration, "weights": weights}
            if norms := gradient_norms(self._optimizer, states, iteration):
                record["gradients"] = norms
            if self._patch is not None and self._affordable():
                record["living"] = self._living(parameters, self._patch)
            if self._looks:
                self._looks.write(record)
            self.take(record)

    def _affordable(self) -> bool:
        return self._spent + self._last <= max(FREE, SHARE * (time.monotonic() - self._began))

    def _living(self, parameters: Arrays, patch: Arrays) -> float:
        began = time.monotonic()
        found = share(living_channels(self._config, self._network, parameters, [patch]))
        self._last = time.monotonic() - began
        self._spent += self._last
        return found

    def close(self, state: str) -> None:
        """Write the last page of this start, which says the `state`."""
        self._writer.close()
        with self._safe():
            if self._looks:
                self._looks.close()
        with self._safe():
            if self._events:
                self._events.close()
        self._state, self._training = state, False
        self._writer.write()
        self._tell()

    def _show(self) -> None:
        self._writer.changed()
        self._tell()

    def _tell(self) -> None:
        if problem := self._writer.problem():
            self._note(f"warning: {problem}")

    def _page(self) -> str:
        with self._lock:
            history = copy.deepcopy(self._history)
            pictures = dict(self._slices.pictures)
        history.taken = self._before + time.monotonic() - self._began
        return render(self._facts, history, pictures, self._state, training=self._training)

    @contextmanager
    def _safe(self) -> Iterator[None]:
        """Note the first error, and ignore all: a run does not end for what is only shown of it."""
        try:
            yield
        except Exception as error:
            if not self._failed:
                self._failed = True
                self._note(f"warning: {told(error)}; training goes on without")


def display_of(
    run: Path,
    config: Config,
    network: Network,
    iteration: int,
    note: Callable[[str], None],
    images: Arrays,
) -> Display:
    """Return what shows a run that begins or goes on at an iteration; `images`: of one sample, by node."""
    patch = {name: array[None] for name, array in images.items()}
    return Display(run, facts_of(run, config), config, network, iteration, note, patch)
