"""Checks of Python arguments: names that do not exist, and values that do not fit their annotation.

A script gets one line that names the argument and what it takes, as the command line does for its flags.
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

#: Characters of a wrong value that an error quotes.
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


def checked_arguments(call: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Check the arguments of a function of the API, and name arguments in its errors where a command names flags.

    One value in place of a list of them becomes a list. Raises ``ConfigError`` for an argument that is unknown, missing
    or of another type. Types that its module imports for annotations alone are not checked.
    """

    @wraps(call)
    def checked(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        try:
            bound = _bound(call, arguments, keywords)
            return call(*bound.args, **bound.kwargs)
        except OversharpError as error:
            error.name_arguments()
            raise

    return checked


def checked_settings(config: type[Config]) -> type[Config]:
    """Check the names and types of what a dataclass of settings is made with; text becomes a path where one is asked.

    Raises ``ConfigError`` for a setting that is unknown or of another type.
    """
    made = config.__init__

    @wraps(made)
    def checked(self: Any, *given: Any, **settings: Any) -> None:
        if given:
            raise ConfigError(f"{config.__name__}: takes settings by name alone, not {_quoted(given[0])}")
        hints = _hints(config)  # type: ignore[arg-type]  # mypy: a class is hashable
        require_known(config.__name__, settings, hints)
        made(self, **{name: settled(name, value, hints[name]) for name, value in settings.items()})

    config.__init__ = checked  # type: ignore[method-assign]
    return config


def require_known(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``ConfigError`` for the first of ``given`` that ``owner`` does not take, with the nearest it does.

    >>> require_known("ship", ["serie"], ["series", "held_out"])
    Traceback (most recent call last):
    oversharp.diagnostics.records.errors.ConfigError: serie: ship takes no such argument; did you mean: series
    """
    known = list(known)
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise ConfigError(f"{unknown}: {owner} takes no such argument; {nearest_names(unknown, known)}")


def settled(name: str, value: Any, hint: Any) -> Any:
    """``value`` as the type ``hint`` has it. Raises ``ConfigError`` where it cannot be.

    >>> settled("k", 8, tuple[int, ...]), settled("series", "grpo", Sequence[str] | None)
    ((8,), ('grpo',))
    >>> settled("n", "64", int | None)
    Traceback (most recent call last):
    oversharp.diagnostics.records.errors.ConfigError: n='64': takes a whole number or None, not str
    """
    value = tuple(value) if isinstance(value, Iterator) else value
    for may_convert in (False, True):
        fitting = _fitted(value, hint, may_convert=may_convert)
        if fitting is not _MISMATCH:
            return fitting
    inside = sorted({type(one).__name__ for one in value}) if isinstance(value, list | tuple) else []
    kind = " with ".join([type(value).__name__, *filter(None, [" and ".join(inside)])])
    near = f"; {nearest_names(value, choices)}" if isinstance(value, str) and (choices := _choices(hint)) else ""
    raise ConfigError(f"{name}={_quoted(value)}: takes {_described(hint)}{near or f', not {kind}'}")


def _fitted(value: Any, hint: Any, *, may_convert: bool) -> Any:
    """``value`` where ``hint`` accepts it; ``may_convert``: one value as a list, text as a path."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _fitted(value, inner[0], may_convert=may_convert)
    if origin in (Union, UnionType):
        tried = (_fitted(value, one, may_convert=may_convert) for one in inner)
        return next((one for one in tried if one is not _MISMATCH), _MISMATCH)
    if origin is Literal:
        return value if any(type(value) is type(one) and value == one for one in inner) else _MISMATCH
    if origin in _COLLECTIONS:
        return _fitted_list(value, inner[0], may_convert=may_convert)
    if origin is Mapping:
        return value if isinstance(value, Mapping) else _MISMATCH
    if hint is Path:
        return Path(value) if isinstance(value, PathLike) or (may_convert and isinstance(value, str)) else _MISMATCH
    return value if _is_plain(value, hint) else _MISMATCH


def _is_plain(value: Any, hint: Any) -> bool:
    """Whether ``value`` is of a plain type, numbers of numpy included; True for types that are not checked."""
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    if hint is bool:  # numpy's bool is none of Python's
        return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
    return isinstance(value, hint) if hint in (str, NoneType) else True


def _fitted_list(value: Any, hint: Any, *, may_convert: bool) -> Any:
    is_one = isinstance(value, str | bytes | PathLike) or not isinstance(value, Iterable)
    if isinstance(value, Mapping) or (is_one and not may_convert):
        return _MISMATCH
    settled_values = []
    for one in [value] if is_one else value:
        fitting = next(
            (fit for may in (False, True) if (fit := _fitted(one, hint, may_convert=may)) is not _MISMATCH), _MISMATCH
        )
        if fitting is _MISMATCH:
            return _MISMATCH
        settled_values.append(fitting)
    return tuple(settled_values)


def _described(hint: Any) -> str:
    """What a type takes, in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _described(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_described(one) for one in inner))
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin in _COLLECTIONS:
        return _TAKES[inner[0]][1] if inner[0] in _TAKES else f"a list, each of it {_described(inner[0])}"
    if origin is Mapping:
        return "a dict"
    return _TAKES[hint][0] if hint in _TAKES else "a value of another kind"


def _choices(hint: Any) -> list[str]:
    """The texts that a type lists, such as those of a ``Literal``."""
    if get_origin(hint) is Literal:
        return [one for one in get_args(hint) if isinstance(one, str)]
    return [choice for one in get_args(hint) for choice in _choices(one)] if get_origin(hint) else []


def _quoted(value: Any) -> str:
    return one_line(repr(value), _QUOTED)


def _bound(call: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> inspect.BoundArguments:
    """The arguments as ``call`` takes them."""
    signature, hints = inspect.signature(call), _hints(call)
    named = {name: one for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD}
    if len(named) == len(signature.parameters):
        require_known(call.__name__, keywords, [name for name in named if name != "self"])
    try:
        bound = signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise ConfigError(f"{call.__name__}: {error}; its arguments are {', '.join(named)}") from None
    for name, value in bound.arguments.items():
        if name in named:
            bound.arguments[name] = settled(name, value, hints.get(name, Any))
    return bound


class _AnyName(type):
    """Lets ``pd.DataFrame`` and ``Sequence[Asked]`` be read where pd and Asked are not imported."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __getitem__(cls, _: Any) -> Any:
        return cls


class _Unchecked(metaclass=_AnyName):
    """A type that is not checked."""


class _NamesOfModule(dict[str, Any]):
    """Names of a module; types that it imports for annotations alone are not checked."""

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):  # a debugger or a test runner looks for these in frames
            raise KeyError(name)
        return _Unchecked


@cache
def _hints(owner: Any) -> Mapping[str, Any]:
    """Types by the name of an argument, or of a field of a dataclass."""
    if isinstance(owner, type):
        return get_type_hints(owner, include_extras=True)
    return get_type_hints(owner, localns=_NamesOfModule({**vars(builtins), **owner.__globals__}), include_extras=True)
