"""Loads and validates configs: a YAML file with overrides, plain values, or one section alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from znnpy.aliases import resolved
from znnpy.config.explain import explain, misspelt
from znnpy.config.models import Config
from znnpy.config.network_section import NetworkSection, Origin
from znnpy.config.problems import Key, MalformedConfigError, Place, Problem, dotted
from znnpy.config.reader import Document, read_file, read_text
from znnpy.fields import of_python, shown, typed

Model = TypeVar("Model", bound=BaseModel)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Load and validate a config file.

    Each override is `dotted.key=value`, the value written as in YAML. Relative paths count from the folder of the
    file, those in overrides from the current folder; all come back absolute. Raises MalformedConfigError (a
    ConfigError) with every problem of file and overrides.
    """
    document = read_file(path)
    return _config(document, overrides, Path(path).resolve().parent)


def load_both(path: str | Path, overrides: Sequence[str]) -> tuple[Config, Config]:
    """Load a config file as it is, and with overrides, as `load_config` does, reading it once.

    Reading takes most of the time: 0.1 s for the 1,400 values of a network of 50 layers.
    """
    document, folder = read_file(path), Path(path).resolve().parent
    plain = _config(document, (), folder)
    if not overrides:
        return plain, plain
    # The first holds nothing of the data, but asks for places.
    return plain, _config(replace(document, places=dict(document.places)), overrides, folder)


def config_from(
    data: Mapping[str, Any], folder: str | Path | None = None, overrides: Sequence[str] = ()
) -> Config:
    """Validate a config given as plain values.

    `folder`: where relative paths count from. Raises MalformedConfigError with every problem.
    """
    document = Document("config", data=_plain(data))
    return _config(document, overrides, Path(folder).resolve() if folder is not None else None)


def config_from_text(text: str, folder: str | Path) -> Config:
    """Validate a config given as YAML text, whose relative paths count from `folder`. Raises as `config_from`."""
    return _config(read_text(text, "config"), (), Path(folder).resolve())


def load_network_section(path: str | Path) -> NetworkSection:
    """Load the network of a YAML file that holds a whole config, or a `network` section alone."""
    document = read_file(path)
    folder = Path(path).resolve().parent
    whole = isinstance(document.data, dict) and "network" in document.data
    return _network(document, ("network",) if whole else (), folder)


def network_section_from(
    data: Mapping[str, Any], folder: str | Path | None = None
) -> NetworkSection:
    """Validate the network of plain values: of a whole config, or a `network` section alone."""
    document = Document("network", data=_plain(data))
    return _network(document, ("network",) if "network" in data else (), folder)


def check_section(section: type[Model], values: Mapping[str, Any], name: str) -> Model:
    """Validate plain values, NumPy numbers included, as one section of a config; `name` begins each problem's text."""
    return _validate(section, Document(name, data=_plain(values)), (), None)


def _plain(value: Any) -> Any:
    """Return the value with NumPy numbers as Python's, paths as text, mappings as dicts and sequences as lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    # As text, relative ones count from the folder, and datasets may follow.
    value = str(value) if isinstance(value, Path) else of_python(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def _config(document: Document, overrides: Sequence[str], folder: Path | None) -> Config:
    for override in overrides:
        _override(document, override)
    config = _validate(Config, document, (), folder)
    config.network.came_from(Origin(document.place, ("network",)))
    return config


def _network(document: Document, key: Key, folder: str | Path | None) -> NetworkSection:
    section = _validate(NetworkSection, document, key, folder)
    section.came_from(Origin(document.place, key))
    return section


def _validate(model: type[Model], document: Document, key: Key, folder: str | Path | None) -> Model:
    data = document.data
    for part in key:
        data = data[part]
    problems = list(document.problems)
    if not isinstance(data, dict):
        what = "is empty" if data is None else f"must be a mapping of keys; found {shown(data)}"
        needed = ", ".join(model.model_fields)
        problems.append(Problem(document.place(key), key, f"{what} (allowed: {needed})"))
        raise MalformedConfigError(problems)
    data = resolved(data)
    try:
        value = model.model_validate(data, context={"folder": folder})
    except ValidationError as error:
        raise MalformedConfigError(
            problems + _problems(error, model, document, key, data)
        ) from None
    if problems:
        raise MalformedConfigError(problems)
    return value


def _problems(
    error: ValidationError, model: type[BaseModel], document: Document, key: Key, data: Any
) -> list[Problem]:
    known = [problem.key for problem in document.problems]
    found = []
    details = error.errors(include_url=False)
    meant = misspelt(details, data, model)
    for detail in details:
        if detail["type"] == "missing" and detail["loc"] in meant:
            continue
        below, message = explain(detail, data, model)
        here = (*key, *below)
        if not any(here[: len(other)] == other for other in known if other):
            found.append(Problem(document.place(here), here, message))
    return found


def _override(document: Document, override: str) -> None:
    """Set one overridden value; problems are noted in the document."""
    place = Place(override=override)
    text, separator, value = override.partition("=")
    key: Key = tuple(part.strip() for part in text.split("."))
    if not separator or not all(key):
        document.add((), "an override is written key=value, such as training.batch=2", place)
        return
    try:
        parsed = read_text(value, "")
    except MalformedConfigError as error:
        document.problems += [Problem(place, key, p.message) for p in error.problems]
        return
    document.problems += [Problem(place, key + p.key, p.message) for p in parsed.problems]
    _set(document, key, typed(parsed.data), place)


def _set(document: Document, key: Key, value: Any, place: Place) -> None:
    inside: Any = document.data
    path: Key = ()
    for part in key:
        try:
            step = _step(inside, str(part))
        except ValueError as error:
            document.add(key, f"{dotted(path) or 'the config'} {error}", place)
            return
        path = (*path, step)
        if len(path) == len(key):
            inside[step] = value
        elif isinstance(inside, dict) and inside.get(step) is None:
            inside[step] = {}
            document.places[path] = place
        inside = inside[step]
    for other in [other for other in document.places if other[: len(path)] == path]:
        del document.places[other]
    document.places[path] = place


def _step(inside: Any, part: str) -> str | int:
    """Return the key or index that one part of an override names; ValueError where the value has neither."""
    if isinstance(inside, dict):
        return part
    if not isinstance(inside, list):
        raise ValueError(f"is {shown(inside)}, no mapping of keys")
    if not part.isdecimal() or int(part) >= len(inside):
        raise ValueError(f"is a list of {len(inside)}, counted from 0; found {part}")
    return int(part)
