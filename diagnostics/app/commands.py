"""Makes commands of the functions of the API: arguments become flags, docstrings the help."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter, Token

from oversharp.diagnostics.audit.config import ConfirmConfig
from oversharp.diagnostics.records.errors import FLAGS
from oversharp.diagnostics.records.progress import ConsoleProgress, ProgressSink, SilentProgress

Command = TypeVar("Command", bound=Callable[..., int])

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, Parameter(name="--quiet", negative=(), help="No progress on stderr.")]
Flag = Annotated[bool, Parameter(negative=())]
#: How much memory a command that reads a store may take for queries, wherever it is asked for.
MemoryGib = Annotated[
    float | None,
    Parameter(
        name="--memory-gib",
        help="Most memory for queries, in GiB; what needs more goes to files beside the store. Default: 1, or half of "
        "what is free if that is less.",
    ),
]

#: What a command fills in by itself.
_BY_COMMAND = ("command", "progress")


def command_line() -> str:
    """The command as it was typed, for the record."""
    return shlex.join(["oversharp", *sys.argv[1:]])


def progress_sink(silent: bool) -> ProgressSink:
    """Where a command says what it does."""
    return SilentProgress() if silent else ConsoleProgress()


def names(_type: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    """``--what a,b`` and ``--what a --what b`` and the TOML list ``what = ["a", "b"]`` all mean the same."""
    return tuple(part.strip() for token in tokens for part in token.value.split(",") if part.strip())


def numbers(_type: Any, tokens: Sequence[Token]) -> tuple[float, ...]:
    """``--lambdas 0.4,0.6`` and ``--lambdas 0.4 0.6`` mean the same."""
    parts = names(_type, tokens)
    try:
        return tuple(float(part) for part in parts)
    except ValueError:
        raise ValueError(f"{','.join(parts)!r} is not a list of numbers such as 0.4,0.6") from None


_LIST = Annotated[tuple[str, ...], Parameter(converter=names, n_tokens=1, negative=(), show_default=False)]
#: How an argument of the API is given on the command line, by its annotation.
_GIVEN: Mapping[str, Any] = MappingProxyType(
    {
        "Path | str": Path,
        "Path | str | None": Path | None,
        "Path | str | Sequence[Path | str]": Annotated[tuple[str, ...], Parameter(negative=())],
        "Sequence[float]": Annotated[
            tuple[float, ...], Parameter(converter=numbers, consume_multiple=True, negative=())
        ],
        "Sequence[int]": Annotated[tuple[int, ...], Parameter(consume_multiple=True, negative=())],
        "Sequence[Path | str]": Annotated[tuple[Path, ...], Parameter(negative=())],
        "Sequence[str] | None": Annotated[tuple[str, ...] | None, Parameter(consume_multiple=True, negative=())],
        "Sequence[str]": Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=(), show_default=False)],
        "Sequence[Asked]": _LIST,
        "Sequence[Format]": _LIST,
        "ConfirmConfig | None": ConfirmConfig | None,
        "str": str,
        "str | None": str | None,
        "int": int,
        "int | None": int | None,
        "float": float,
        "float | None": float | None,
        "bool": Flag,
    }
)


def command_of(verb: Callable[..., Any], show: Callable[[Any, bool], int]) -> Callable[..., int]:
    """The command that calls ``verb`` of the API: its first argument in place, the others as flags.

    ``show`` prints the result, as JSON if the second argument is true, and returns the exit code. ``FLAGS`` names those
    that are not called as their argument.
    """
    asked = inspect.signature(verb).parameters
    given = [one for one in asked.values() if one.name not in _BY_COMMAND and one.kind is not one.VAR_KEYWORD]
    first = given[0].name

    def run(*arguments: Any, as_json: bool = False, quiet: bool = False, **named: Any) -> int:
        filled: dict[str, Any] = {"command": command_line(), "progress": progress_sink(as_json or quiet)}
        filled = {name: value for name, value in filled.items() if name in asked}
        return show(verb(**dict(zip((first,), arguments, strict=True)), **named, **filled), as_json)

    own = [
        one.replace(
            kind=one.POSITIONAL_ONLY if one.name == first else one.KEYWORD_ONLY,
            annotation=_annotation(one),
        )
        for one in given
    ]
    for name, kind in (("as_json", Json), ("quiet", Quiet)):
        if name == "as_json" or "progress" in asked:
            own.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind))
    run.__signature__ = inspect.Signature(own, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in own}
    run.__name__ = verb.__name__
    run.__doc__ = verb.__doc__
    return run


def documented_by(verb: Callable[..., Any]) -> Callable[[Command], Command]:
    """Give a command the docstring of the function of the API that it calls."""

    def with_docstring(command: Command) -> Command:
        command.__doc__ = verb.__doc__
        return command

    return with_docstring


def _annotation(argument: inspect.Parameter) -> Any:
    if argument.name == "memory_gib":
        return MemoryGib
    kind, flag = _GIVEN[argument.annotation], FLAGS.get(argument.name)
    return kind if flag is None else Annotated[kind, Parameter(name=flag)]
