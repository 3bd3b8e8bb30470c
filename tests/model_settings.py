"""Models whose settings are given one by one, as tests vary them, and put into the groups of `Model` here."""

from typing import Any

from znnpy import Model
from znnpy.engine.settings import GROUPS, HOMES


def grouped(**settings: Any) -> dict[str, Any]:
    """Keywords of `Model`; what is set for updates goes where `training` is false."""
    found = {key: value for key, value in settings.items() if key not in HOMES}
    for name, group in GROUPS.items():
        own = {key: value for key, value in settings.items() if HOMES.get(key) == name}
        if own and found.get(name, True) is True:
            found[name] = group(**own)
    return found


def model_of(*sizes: Any, **settings: Any) -> Model:
    """The model of a network, an output shape, a batch, and any settings."""
    return Model(*sizes, **grouped(**settings))
