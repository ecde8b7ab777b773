"""Build commands from functions of the API: arguments become flags, docstrings become help."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter, Token

from oversharp.diagnostics.audit.confirm_config import ConfirmConfig
from oversharp.diagnostics.records.errors import FLAGS
from oversharp.diagnostics.records.names import store_file
from oversharp.diagnostics.records.progress import ConsoleProgress, ProgressSink, SilentProgress

Command = TypeVar("Command", bound=Callable[..., int])

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, Parameter(name="--quiet", negative=(), help="Print no progress on stderr.")]
Explain = Annotated[
    bool, Parameter(name="--explain", negative=(), help="Also print the result in sentences, with all caveats.")
]
Flag = Annotated[bool, Parameter(negative=())]
#: Flag for the memory limit of queries. Every command that reads a store has it.
MemoryGib = Annotated[
    float | None,
    Parameter(
        name="--memory-gib",
        help="Memory limit for queries, in GiB; larger results are spilled to files next to the store. Default: 1, or "
        "half of the free memory if that is less.",
    ),
]

#: Arguments of API functions that do not become flags.
_SET_BY_COMMAND = ("command", "progress")


def command_line() -> str:
    """Return the command as typed. The store records it."""
    return shlex.join(["oversharp", *sys.argv[1:]])


def progress_sink(silent: bool) -> ProgressSink:
    """Return the progress output of a command."""
    return SilentProgress() if silent else ConsoleProgress()


def split_names(_type: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Split comma-separated names.

    ``--what a,b`` equals ``--what a --what b`` and TOML's ``["a", "b"]``.
    """
    return tuple(part.strip() for token in tokens for part in token.value.split(",") if part.strip())


def split_numbers(_type: Any, tokens: Sequence[Token]) -> tuple[float, ...]:
    """Split comma-separated numbers. ``--lambdas 0.4,0.6`` equals ``--lambdas 0.4 0.6``."""
    parts = split_names(_type, tokens)
    try:
        return tuple(float(part) for part in parts)
    except ValueError:
        raise ValueError(f"{','.join(parts)!r} is not a list of numbers such as 0.4,0.6") from None


_LIST = Annotated[tuple[str, ...], Parameter(converter=split_names, n_tokens=1, negative=(), show_default=False)]
#: Annotation of an API argument → type of its flag.
_FLAG_TYPES: Mapping[str, Any] = MappingProxyType(
    {
        "Path | str": Path,
        "Path | str | None": Path | None,
        "Path | str | Sequence[Path | str]": Annotated[tuple[str, ...], Parameter(negative=())],
        "Sequence[float]": Annotated[
            tuple[float, ...], Parameter(converter=split_numbers, consume_multiple=True, negative=())
        ],
        "Sequence[int]": Annotated[tuple[int, ...], Parameter(consume_multiple=True, negative=())],
        "Sequence[Path | str]": Annotated[tuple[Path, ...], Parameter(negative=())],
        "Sequence[str] | None": Annotated[tuple[str, ...] | None, Parameter(consume_multiple=True, negative=())],
        "Sequence[str]": Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=(), show_default=False)],
        "Sequence[RequestedWhat]": _LIST,
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


def command_of(verb: Callable[..., Any], show: Callable[..., int]) -> Callable[..., int]:
    """Return a command that calls the API function ``verb``.

    The first argument of ``verb`` is positional, the others become flags. ``show`` prints the result and returns the
    exit code; its second argument chooses JSON. If ``show`` has an argument ``explain``, the command gets that flag. If
    it has an argument ``store_path``, it receives the first argument of the command. ``FLAGS`` has the flags whose
    names differ from their arguments.
    """
    accepted, shown = inspect.signature(verb).parameters, inspect.signature(show).parameters
    own = [
        parameter
        for parameter in accepted.values()
        if parameter.name not in _SET_BY_COMMAND and parameter.kind is not parameter.VAR_KEYWORD
    ]
    first = own[0].name

    def run(*arguments: Any, as_json: bool = False, quiet: bool = False, explain: bool = False, **flags: Any) -> int:
        settings: dict[str, Any] = {"command": command_line(), "progress": progress_sink(as_json or quiet)}
        settings = {name: value for name, value in settings.items() if name in accepted}
        options: dict[str, Any] = {"explain": explain} if "explain" in shown else {}
        result = verb(**dict(zip((first,), arguments, strict=True)), **flags, **settings)
        if "store_path" in shown:
            options["store_path"] = store_file(arguments[0])
        return show(result, as_json, **options)

    parameters = [
        parameter.replace(
            kind=parameter.POSITIONAL_ONLY if parameter.name == first else parameter.KEYWORD_ONLY,
            annotation=_annotation(parameter),
        )
        for parameter in own
    ]
    for name, kind, is_wanted in (
        ("explain", Explain, "explain" in shown),
        ("as_json", Json, True),
        ("quiet", Quiet, "progress" in accepted),
    ):
        if is_wanted:
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind))
    run.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__ = verb.__name__
    run.__doc__ = verb.__doc__
    return run


def documented_by(verb: Callable[..., Any]) -> Callable[[Command], Command]:
    """Set the docstring of a command to that of the API function that it calls."""

    def with_docstring(command: Command) -> Command:
        command.__doc__ = verb.__doc__
        return command

    return with_docstring


def _annotation(argument: inspect.Parameter) -> Any:
    if argument.name == "memory_gib":
        return MemoryGib
    kind, flag = _FLAG_TYPES[argument.annotation], FLAGS.get(argument.name)
    return kind if flag is None else Annotated[kind, Parameter(name=flag)]
