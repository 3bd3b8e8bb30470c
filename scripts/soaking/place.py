"""A folder with volumes and a config, sized so that its jobs take a few times as long as faults are apart."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from znnpy_kernels.machine import cache

from soaking.jobs import Job, Prediction, Training
from soaking.process import Process, WrongError
from znnpy.infer.log import log_of
from znnpy.train.run_directory import TIMINGS

CONFIG = """
network:
  layers:
    - conv: {{channels: 8, size: 3, function: relu}}
    - dropout: 0.8
    - max_filter: 2
    - conv: {{channels: 12, size: 3, function: relu}}
    - conv: {{channels: 1, size: 3}}
data:
  train: [{{image: data.h5:raw, labels: data.h5:labels}}]
  validation: [{{image: data.h5:raw, labels: data.h5:labels}}]
training:
  iterations: {iterations}
  batch: 2
  output_shape: 12
  optimizer: adam
  learning_rate: 0.002
  conv: direct
  validation: {{every: {validate}, patches: 4}}
run: {{directory: run, threads: {threads}, checkpoint: {{every: {save}, keep: 2}}, log_every: 1}}
"""
PROBE = 500  # iterations that are measured
SIDE = 128  # of the stack that is predicted
DEPTHS = (24, 4096)
LONG = 2.5  # time of a job by that between faults


@dataclass(frozen=True)
class Place:
    """All jobs of a folder; each uses files of its own there, and kernels of its own."""

    folder: Path
    threads: int = 2

    @property
    def environment(self) -> dict[str, str]:
        """Of the jobs' processes: they may lose all compiled kernels, so these are theirs alone."""
        return {"ZNNPY_CACHE": str(self.cache)}

    @property
    def cache(self) -> Path:
        """Compiled kernels."""
        return self.folder / "cache"

    @property
    def jobs(self) -> list[Job]:
        """Training comes first: the others use its run."""
        run, stack = self.folder / "run", self.folder / "stack.h5"
        outputs = [self.folder / f"out{suffix}" for suffix in (".h5", ".zarr")]
        training = Training(self.folder / "config.yaml", run)
        return [training, *(Prediction(run, stack, output) for output in outputs)]

    def prepare(self, seconds_apart: float) -> None:
        """Volumes, config and kernels; sizes by measured rates."""
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(cache.root(), self.cache, dirs_exist_ok=True)
        self._volumes(DEPTHS[0])
        self._config(PROBE)
        rates = [self._rate(job) for job in self.jobs[:2]]
        self._config(max(PROBE, int(rates[0] * LONG * seconds_apart)))
        depth = int(rates[1] * LONG * seconds_apart / SIDE**2)
        self._volumes(min(max(depth, DEPTHS[0]), DEPTHS[1]))
        for job in self.jobs[:2]:
            job.remove()

    def finished(self, job: Job) -> None:
        """Run a job undisturbed."""
        ending = Process(job.words, self.environment).ending()
        if ending.code:
            raise WrongError(f"{job.name} fails undisturbed: {ending.said}")

    def _rate(self, job: Job) -> float:
        """Updates or voxels a second."""
        self.finished(job)
        if isinstance(job, Prediction):
            record = json.loads(log_of(job.output).read_text().splitlines()[-2])
            return float(record["voxels_per_s"])
        assert isinstance(job, Training)
        return float(json.loads((job.run / TIMINGS).read_text().splitlines()[-1])["updates_per_s"])

    def _config(self, iterations: int) -> None:
        text = CONFIG.format(
            iterations=iterations,
            validate=iterations // 4,
            save=iterations // 25,
            threads=self.threads,
        )
        (self.folder / "config.yaml").write_text(text)

    def _volumes(self, depth: int) -> None:
        rng = np.random.default_rng(0)
        labels = rng.integers(1, 99, (4, 5, 5)).astype(np.uint32)
        labels = labels.repeat(10, 0).repeat(10, 1).repeat(10, 2)
        labels[:, ::5] = 0
        raw = (labels == 0) * 100 + rng.integers(0, 100, labels.shape)
        with h5py.File(self.folder / "data.h5", "w") as file:
            file["raw"], file["labels"] = raw.astype(np.uint8), labels
        with h5py.File(self.folder / "stack.h5", "w") as file:
            file["raw"] = rng.integers(0, 200, (depth, SIDE, SIDE), np.uint8)
