"""Check arguments of the Python API: unknown names, and values of the wrong type.

An error names the argument and its expected type in one line, as errors of command-line flags do.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, wraps
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from oversharp.diagnostics.records.cells import one_line
from oversharp.diagnostics.records.errors import ConfigError, OversharpError
from oversharp.diagnostics.records.names import nearest_names

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Config = TypeVar("Config")

#: Largest number of characters of a wrong value that an error message quotes.
_QUOTED = 60
_TAKES: Mapping[Any, tuple[str, str]] = {
    NoneType: ("None", "None"),
    bool: ("True or False", "a list of True or False"),
    int: ("a whole number", "a list of whole numbers"),
    float: ("a number", "a list of numbers"),
    str: ("text", "a list of texts"),
    Path: ("a path", "a list of paths"),
}
_COLLECTIONS = (tuple, Sequence)
_MISMATCH = object()


def check_arguments(call: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Check the arguments of an API function. Error messages name arguments instead of flags.

    A single value for a list parameter becomes a list. Types that the module imports only for annotations are not
    checked. Raises ``ConfigError`` for an argument that is unknown, missing or of the wrong type.
    """

    @wraps(call)
    def checked(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        try:
            bound = _bind_arguments(call, arguments, keywords)
            return call(*bound.args, **bound.kwargs)
        except OversharpError as error:
            error.name_arguments()
            raise

    return checked


def check_settings(config: type[Config]) -> type[Config]:
    """Check field names and types when a settings dataclass is created, and convert text to paths.

    Raises ``ConfigError`` for a setting that is unknown or of the wrong type.
    """
    original_init = config.__init__

    @wraps(original_init)
    def checked(self: Any, *positional: Any, **settings: Any) -> None:
        if positional:
            raise ConfigError(f"{config.__name__}: takes only keyword arguments, not {_quote_value(positional[0])}")
        hints = _hints(config)  # type: ignore[arg-type]  # mypy: a class is hashable
        require_known(config.__name__, settings, hints)
        original_init(self, **{name: convert_value(name, value, hints[name]) for name, value in settings.items()})

    config.__init__ = checked  # type: ignore[method-assign]
    return config


def require_known(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``ConfigError`` for the first unknown name, with the nearest known names.

    >>> require_known("ship", ["serie"], ["series", "held_out"])
    Traceback (most recent call last):
    oversharp.diagnostics.records.errors.ConfigError: serie: ship takes no such argument; did you mean: series
    """
    known = list(known)
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise ConfigError(f"{unknown}: {owner} takes no such argument; {nearest_names(unknown, known)}")


def convert_value(name: str, value: Any, hint: Any) -> Any:
    """Convert ``value`` to the type ``hint``.

    Raises ``ConfigError`` if that is impossible.

    >>> convert_value("k", 8, tuple[int, ...]), convert_value("series", "grpo", Sequence[str] | None)
    ((8,), ('grpo',))
    >>> convert_value("n", "64", int | None)
    Traceback (most recent call last):
    oversharp.diagnostics.records.errors.ConfigError: n='64': takes a whole number or None, not str
    """
    value = tuple(value) if isinstance(value, Iterator) else value
    for may_convert in (False, True):
        fitting = _convert(value, hint, may_convert=may_convert)
        if fitting is not _MISMATCH:
            return fitting
    inside = sorted({type(item).__name__ for item in value}) if isinstance(value, list | tuple) else []
    kind = " with ".join([type(value).__name__, *filter(None, [" and ".join(inside)])])
    near = f"; {nearest_names(value, choices)}" if isinstance(value, str) and (choices := _choices(hint)) else ""
    raise ConfigError(f"{name}={_quote_value(value)}: takes {_describe_type(hint)}{near or f', not {kind}'}")


def _convert(value: Any, hint: Any, *, may_convert: bool) -> Any:
    """Convert ``value`` to ``hint``, or return ``_MISMATCH``.

    ``may_convert`` allows a single value for a list, and text for a path.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _convert(value, inner[0], may_convert=may_convert)
    if origin in (Union, UnionType):
        tried = (_convert(value, option, may_convert=may_convert) for option in inner)
        return next((fit for fit in tried if fit is not _MISMATCH), _MISMATCH)
    if origin is Literal:
        return value if any(type(value) is type(choice) and value == choice for choice in inner) else _MISMATCH
    if origin in _COLLECTIONS:
        return _convert_list(value, inner[0], may_convert=may_convert)
    if origin is Mapping:
        return value if isinstance(value, Mapping) else _MISMATCH
    if hint is Path:
        return Path(value) if isinstance(value, PathLike) or (may_convert and isinstance(value, str)) else _MISMATCH
    return value if _is_plain(value, hint) else _MISMATCH


def _is_plain(value: Any, hint: Any) -> bool:
    """Return whether ``value`` has the plain type ``hint``. Types that are not checked return True.

    Numpy numbers count as Python numbers.
    """
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    if hint is bool:  # numpy's bool is not a Python bool
        return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
    return isinstance(value, hint) if hint in (str, NoneType) else True


def _convert_list(value: Any, hint: Any, *, may_convert: bool) -> Any:
    is_single = isinstance(value, str | bytes | PathLike) or not isinstance(value, Iterable)
    if isinstance(value, Mapping) or (is_single and not may_convert):
        return _MISMATCH
    settled_values = []
    for item in [value] if is_single else value:
        fitting = next(
            (fit for may in (False, True) if (fit := _convert(item, hint, may_convert=may)) is not _MISMATCH), _MISMATCH
        )
        if fitting is _MISMATCH:
            return _MISMATCH
        settled_values.append(fitting)
    return tuple(settled_values)


def _describe_type(hint: Any) -> str:
    """Describe a type in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _describe_type(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_describe_type(option) for option in inner))
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin in _COLLECTIONS:
        return _TAKES[inner[0]][1] if inner[0] in _TAKES else f"a list, each element {_describe_type(inner[0])}"
    if origin is Mapping:
        return "a dict"
    return _TAKES[hint][0] if hint in _TAKES else "a value of another kind"


def _choices(hint: Any) -> list[str]:
    """Return the texts that a type allows, such as those of a ``Literal``."""
    if get_origin(hint) is Literal:
        return [choice for choice in get_args(hint) if isinstance(choice, str)]
    return [choice for option in get_args(hint) for choice in _choices(option)] if get_origin(hint) else []


def _quote_value(value: Any) -> str:
    return one_line(repr(value), _QUOTED)


def _bind_arguments(
    call: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Bind the arguments to the parameters of ``call``."""
    signature, hints = inspect.signature(call), _hints(call)
    named = {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    if len(named) == len(signature.parameters):
        require_known(call.__name__, keywords, [name for name in named if name != "self"])
    try:
        bound = signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise ConfigError(f"{call.__name__}: {error}; its arguments are {', '.join(named)}") from None
    for name, value in bound.arguments.items():
        if name in named:
            bound.arguments[name] = convert_value(name, value, hints.get(name, Any))
    return bound


class _AnyName(type):
    """Placeholder that lets ``pd.DataFrame`` and ``Sequence[X]`` evaluate where pd and X are not imported."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __getitem__(cls, _: Any) -> Any:
        return cls


class _Unchecked(metaclass=_AnyName):
    """Placeholder for a type that is not checked."""


class _NamesOfModule(dict[str, Any]):
    """Names of a module.

    Names imported only for annotations map to a placeholder that is not checked.
    """

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):  # debuggers and test runners look up these names in frames
            raise KeyError(name)
        return _Unchecked


@cache
def _hints(owner: Any) -> Mapping[str, Any]:
    """Return the type hint of each argument, or of each field of a dataclass."""
    if isinstance(owner, type):
        return get_type_hints(owner, include_extras=True)
    return get_type_hints(owner, localns=_NamesOfModule({**vars(builtins), **owner.__globals__}), include_extras=True)
