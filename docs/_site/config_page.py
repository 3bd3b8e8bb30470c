"""The config's keys as a page, made from its JSON schema: types, defaults and descriptions are those of the code."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from _site.text import entry, escaped

Schema = Mapping[str, Any]
MANY = 2**16  # bounds beyond are there for safety alone
PREFIX = "#/$defs/"
PLAIN = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
}


def page(schema: Schema) -> str:
    """Headings for all sections, and within them for the mappings that they may hold, each once."""
    return "\n".join(Page(schema).lines()) + "\n"


class Page:
    """The definitions of a schema, and where in a config each was met first."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.definitions: Mapping[str, Schema] = schema.get("$defs", {})
        self.places: dict[str, str] = {}
        for name, section in schema["properties"].items():
            self._place(section, name)

    def _place(self, schema: Schema, path: str) -> None:
        for name in referred(schema):
            kind = self._kind(name)
            if name not in self.places:
                self.places[name] = f"{path}, kind {kind}" if kind else path
                for key, inside in self.definitions[name].get("properties", {}).items():
                    self._place(inside, f"{path}.{key}")

    def _kind(self, name: str) -> str:
        kind: str = self.definitions[name].get("properties", {}).get("kind", {}).get("const", "")
        return kind

    def lines(self) -> Iterator[str]:
        """Markdown."""
        tops = set(self.schema["properties"])
        for name, path in self.places.items():
            definition = self.definitions[name]
            level = "##" if path in tops else "###"
            yield from (f"({anchor(name)})=", "", f"{level} {escaped(path)}", "")
            yield from (escaped(definition.get("description", "")), "")
            needed = definition.get("required", ())
            for key, value in definition.get("properties", {}).items():
                yield from self._key(key, value, key in needed)

    def _key(self, key: str, schema: Schema, needed: bool) -> Iterator[str]:
        notes = [self.words(schema)]
        if needed:
            notes.append("**required**")
        elif schema.get("default") is not None:
            notes.append(f"default `{json.dumps(schema['default'])}`")
        meaning = escaped(schema.get("description", ""))
        said = f"[{'; '.join(notes)}]{{.values}}"
        yield from entry(f"`{key}`", f"{meaning}\\\n{said}" if meaning else said)

    def words(self, schema: Schema) -> str:
        """The values that a schema takes, in words."""
        if "$ref" in schema:
            name = schema["$ref"].removeprefix(PREFIX)
            return f"mapping [{escaped(self.places[name])}](#{anchor(name)})"
        if "const" in schema:
            return f"`{json.dumps(schema['const'])}`"
        if "enum" in schema:
            one = "one of " if len(schema["enum"]) > 1 else ""
            return one + ", ".join(f"`{json.dumps(it)}`" for it in schema["enum"])
        parts = schema.get("anyOf") or schema.get("oneOf")
        if parts:
            kinds = self._kinds(without_none(parts))
            if kinds:
                return f"mapping of kind {', '.join(kinds)}"
            said: list[str] = []
            for part in without_none(parts):
                such = part.get("type") == "array" and self.words(part.get("items", {})) in said
                words = f"list{length(part)} such" if such else self.words(part)
                said += [words] if words not in said else []
            return " or ".join(said)
        return self._plain(schema)

    def _kinds(self, parts: list[Schema]) -> list[str]:
        """Links to mappings that differ by their `kind`; none unless all do."""
        names = [part.get("$ref", "").removeprefix(PREFIX) for part in parts]
        if len(names) < 2 or not all(name and self._kind(name) for name in names):
            return []
        return [f"[{escaped(self._kind(name))}](#{anchor(name)})" for name in names]

    def _plain(self, schema: Schema) -> str:
        kind = schema.get("type")
        if kind == "array":
            items = schema.get("items") or {}
            if "prefixItems" in schema:
                each = list(dict.fromkeys(map(self.words, schema["prefixItems"])))
                return f"list of {len(schema['prefixItems'])}: {' or '.join(each)}"
            each = f" (each {self.words(items)})" if items else ""
            return f"list{length(schema)}{each}"
        if kind == "object":
            inside = schema.get("additionalProperties")
            return f"mapping of names (each {self.words(inside)})" if inside else "mapping"
        return PLAIN.get(str(kind), "any value") + bounds(schema)


def referred(schema: Any) -> Iterator[str]:
    """Names of the definitions that a schema leads to by itself."""
    if isinstance(schema, Mapping):
        if "$ref" in schema:
            yield schema["$ref"].removeprefix(PREFIX)
        for key in ("anyOf", "oneOf", "items", "prefixItems", "additionalProperties"):
            yield from referred(schema.get(key))
    elif isinstance(schema, list):
        for inside in schema:
            yield from referred(inside)


def anchor(name: str) -> str:
    """Of a definition's heading."""
    return f"config-{name.lower()}"


def without_none(parts: list[Schema]) -> list[Schema]:
    """Keys that may be left out are not written as null."""
    return [part for part in parts if part.get("type") != "null"]


def length(schema: Schema) -> str:
    """How many a list holds, where it is always as many."""
    many = schema.get("minItems")
    return f" of {many}" if many is not None and many == schema.get("maxItems") else ""


def bounds(schema: Schema) -> str:
    """Limits of a number that a user may meet."""
    names = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}
    names["exclusiveMaximum"] = "below"
    said = [
        f"{word} {schema[key]:g}"
        for key, word in names.items()
        if key in schema and abs(schema[key]) < MANY
    ]
    return f" {' and '.join(said)}" if said else ""
