"""Which parameters of a network are frozen: learned otherwise, and named by patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from znnpy.errors import ConfigError
from znnpy.network.parameters import learned
from znnpy.network.types import Network


def frozen(
    network: Network, patterns: Sequence[str], place: Callable[[int], str]
) -> frozenset[str]:
    """Return the names of parameters that any of the patterns (`*`, `?`, `[ab]`) names.

    `place`: where a pattern stands, by its index. Raises ConfigError for one that names none, and if nothing is left
    to learn.
    """
    names, found = learned(network), set[str]()
    for index, pattern in enumerate(patterns):
        named = {name for name in names if fnmatchcase(name, pattern)}
        if not named:
            raise ConfigError(
                f"{place(index)}: {pattern!r} names no parameter that is learned (there are: {', '.join(names[:12])}"
                f"{', ...' if len(names) > 12 else ''})"
            )
        found |= named
    if found and len(found) == len(names):
        raise ConfigError(f"{place(0)}: freezes all parameters, so that nothing would be learned")
    return frozenset(found)
