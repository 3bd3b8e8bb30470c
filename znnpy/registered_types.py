"""pydantic types of config keys whose allowed values are the entries of a registry at validation time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class Registered:
    """A type made of the entries of a registry, and made anew when entries were added.

    pydantic treats a subclass as the type that `annotation()` returns: same values, errors and JSON schema.
    """

    registry: ClassVar[Mapping[str, Any]]
    make: ClassVar[Callable[[], Any]]
    _made: ClassVar[tuple[tuple[Any, ...], Any, TypeAdapter[Any]] | None] = None

    @classmethod
    def annotation(cls) -> Any:
        """Return the type for all entries that the registry has now."""
        return cls._current()[0]

    @classmethod
    def _current(cls) -> tuple[Any, TypeAdapter[Any]]:
        entries = tuple(cls.registry.values())
        if cls._made is None or not _same(cls._made[0], entries):
            annotation = cls.make()
            cls._made = entries, annotation, TypeAdapter(annotation)
        return cls._made[1], cls._made[2]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(cls._validated)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(cls._current()[1].core_schema)

    @classmethod
    def _validated(cls, value: Any, info: ValidationInfo) -> Any:
        # Its errors keep their keys: pydantic takes a ValidationError over as it is.
        return cls._current()[1].validate_python(value, context=info.context)


def _same(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))


def registered(registry: Mapping[str, Any], make: Callable[[], Any]) -> type[Registered]:
    """Return a type whose values are those of `make()`, made anew whenever the registry changed.

    A lone model would lose its name in JSON schemas; a union or a list of models keeps it.
    """
    own = {"registry": registry, "make": staticmethod(make)}
    return type("Registered", (Registered,), own)
