"""The base of all that is closed when a `with` block ends: models, executors, volumes, outputs, logs."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Is its own context manager: `close` is called when the block ends, by an error as well."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release what is held."""
        raise NotImplementedError
