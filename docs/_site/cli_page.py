"""The commands as a page, made from what parses them."""

import inspect
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from _site.text import entry, escaped


def page(program: Any) -> str:
    """The options of all commands, then a heading for each: how it is called, its help, its own options."""
    own = [line for it in program.params for line in entry(term(it), meaning(it))]
    of_commands = [line for name in program.commands for line in lines(name, program)]
    return "\n".join(["## Of all commands", "", *own, *of_commands]) + "\n"


def lines(name: str, program: Any) -> Iterator[str]:
    """Of one command."""
    command = program.commands[name]
    arguments = [it for it in command.params if it.param_type_name == "argument"]
    options = [it for it in command.params if it.param_type_name == "option" and not it.hidden]
    needed = [f"{it.opts[0]} {value(it)}" for it in options if it.required]
    called = " ".join([*(value(it) for it in arguments), *needed])
    yield from (f"(command-{name})=", "", f"## znnpy {name}", "")
    yield from ("```text", f"znnpy {name} {called} [OPTIONS]".replace("  ", " "), "```", "")
    yield from (escaped(inspect.cleandoc(command.help or "")), "")
    for parameter in (*arguments, *options):
        yield from entry(term(parameter), meaning(parameter))


def term(parameter: Any) -> str:
    """An option with its other names and its value."""
    if parameter.param_type_name == "argument":
        return f"`{value(parameter)}`"
    names = ", ".join(f"`{it}`" for it in (*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} `{value(parameter)}`"


def value(parameter: Any) -> str:
    """What stands for the value."""
    annotation = parameter.type_descriptor.annotation
    if get_origin(annotation) is Literal:
        return "|".join(map(str, get_args(annotation)))
    return str(parameter.metavar or parameter.name.strip("_").upper())


def meaning(parameter: Any) -> str:
    """Its help, whether it must be given, how often it may be, and what it is otherwise."""
    notes = ["**Required.**"] if parameter.required else []
    if parameter.multiple and not parameter.required:
        notes.append("May be given several times.")
    if parameter.default not in (None, False, 0, "", [], ()):
        notes.append(f"Default: `{parameter.default}`.")
    return " ".join([escaped(parameter.help or ""), *notes])
