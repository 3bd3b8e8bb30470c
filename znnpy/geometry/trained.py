"""Shapes of what a config trains."""

from __future__ import annotations

from znnpy.config import Config
from znnpy.errors import ConfigError, NetworkError, ShapeError
from znnpy.geometry.fit import Geometry, fit
from znnpy.geometry.samples import refuse_single_values
from znnpy.network.types import Network


def trained_geometry(config: Config, network: Network) -> Geometry:
    """Shapes for `training.output_shape`, of a config's `trained_network`.

    Raises ConfigError with the line of that key where the size does not fit, and with that of the network
    where none does.
    """
    training = config.training
    try:
        geometry = fit(network, training.output_shape)
        refuse_single_values(network, geometry, training.at_once)
    except ShapeError as error:
        raise ConfigError(f"{config.place('training', 'output_shape')}: {error}") from None
    except NetworkError as error:
        raise ConfigError(f"{config.place('network')}: {error}") from None
    return geometry
