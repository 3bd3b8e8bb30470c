"""Where a prediction lies, for processes and threads that open it themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from znnpy.data.fingerprint import fingerprint
from znnpy.data.opening import open_volume
from znnpy.data.volume import Volume
from znnpy.dataset_path import address, split_source
from znnpy.errors import VolumeError


@dataclass(frozen=True)
class Source:
    """A prediction as a job began with it, when it had this `fingerprint`."""

    path: Path
    dataset: str | None
    allow_filters: tuple[str, ...]
    fingerprint: str

    @classmethod
    def of(cls, volume: Volume, allow_filters: tuple[str, ...] = ()) -> Self:
        """Return where an open volume lies, wherever others work."""
        path, dataset = split_source(volume.name)
        path = path if address(path) else path.resolve()
        return cls(path, dataset, allow_filters, fingerprint(volume, path))

    @contextmanager
    def opened(self) -> Iterator[Volume]:
        """Yield the volume; raise VolumeError where it is another one by now."""
        with open_volume(self.path, self.dataset, allow_filters=self.allow_filters) as volume:
            if fingerprint(volume, self.path) != self.fingerprint:
                raise VolumeError(f"{volume.name} is another file now than when the job began")
            yield volume
