"""Find plugins in our packages and in entry-point groups ``oversharp.*``.

Plugins are measures, importers, samplers, tasks and verifiers. Measures and importers are records, found in the modules
of their folder and by entry point. Samplers, tasks and verifiers are callables, whose name is that of their entry
point. A broken plugin, or one with an existing name, raises a ``ConfigError``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar, Protocol, TypeVar

from oversharp.diagnostics.records.errors import ConfigError

#: Errors that the import of a broken plugin may raise. Other errors propagate.
_BROKEN = (ImportError, AttributeError, NameError, SyntaxError, TypeError, ValueError, RuntimeError, OSError)


class Record(Protocol):
    """A frozen dataclass with a name and a docstring, by default the docstring of its module."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """Name shown to users."""
        ...

    @property
    def doc(self) -> str:
        """Text that ``oversharp explain`` prints; may be empty."""
        ...


RecordT = TypeVar("RecordT", bound=Record)


def find_records(kind: type[RecordT], package: ModuleType, group: str) -> Mapping[str, RecordT]:
    """Return the records of type ``kind`` by name, from all modules in ``package`` and from entry points.

    A module has records in three forms: made by decorators of its functions, a record with the upper-case name of
    ``kind`` (``MEASURE``), or a tuple with its plural (``MEASURES``). An entry point refers to a record or to such a
    module. Raises ``ConfigError`` for a broken or clashing plugin.
    """
    by_name: dict[str, RecordT] = {}
    origin: dict[str, str] = {}
    for where, record in (*_own_records(kind, package), *_plugin_records(kind, group)):
        if record.name in by_name:
            raise _clash_error(kind.__name__.lower(), record.name, origin[record.name], where)
        by_name[record.name], origin[record.name] = record, where
    return MappingProxyType(by_name)


def find_callables(group: str, own: Collection[str]) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, without loading them.

    ``own`` has the names of the built-in plugins. Raises ``ConfigError`` if two have the same name.
    """
    by_name: dict[str, EntryPoint] = {}
    for point in _find_points(group):
        if point.name in own or point.name in by_name:
            other = "oversharp" if point.name in own else _title(by_name[point.name])
            raise _clash_error(_noun(group), point.name, other, _title(point))
        by_name[point.name] = point
    return MappingProxyType(by_name)


def load_callable(point: EntryPoint) -> Callable[..., Any]:
    """Load the callable of an entry point.

    Raises ``ConfigError`` if it cannot be loaded or called.
    """
    loaded = _load_point(point)
    if not callable(loaded):
        raise _plugin_error(point, f"a {type(loaded).__name__}, not a callable; point it at a class or a function")
    return loaded


def _own_records(kind: type[RecordT], package: ModuleType) -> Iterator[tuple[str, RecordT]]:
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        for record in _records_in(kind, module):
            yield module.__name__, _with_doc(record, module)


def _plugin_records(kind: type[RecordT], group: str) -> Iterator[tuple[str, RecordT]]:
    for point in _find_points(group):
        loaded = _load_point(point)
        records = _records_in(kind, loaded) or (loaded,)
        for record in records:
            if not isinstance(record, kind):
                wanted = f"a {kind.__name__} or at a module that defines {kind.__name__.upper()}"
                raise _plugin_error(point, f"a {type(record).__name__}, not a {kind.__name__}; point it at {wanted}")
            yield _title(point), _with_doc(record, sys.modules[point.module])


def _records_in(kind: type[RecordT], module: object) -> tuple[RecordT, ...]:
    name = kind.__name__.upper()
    single = getattr(module, name, None)
    values = list(vars(module).values()) if isinstance(module, ModuleType) else []
    # a record made by a decorator has the module of the function, other records have the module of their class
    own = (value for value in values if isinstance(value, kind) and value.__module__ == getattr(module, "__name__", ""))
    return (*getattr(module, f"{name}S", ()), *(() if single is None else (single,)), *own)


def _with_doc(record: RecordT, module: ModuleType) -> RecordT:
    doc = inspect.cleandoc(record.doc or module.__doc__ or "")
    return record if record.doc == doc else replace(record, doc=doc)


def _find_points(group: str) -> tuple[EntryPoint, ...]:
    return _find_points_on(tuple(sys.path), group)


@cache  # cached, because reading the metadata of all distributions takes tens of milliseconds
def _find_points_on(path: tuple[str, ...], group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _load_point(point: EntryPoint) -> object:
    try:
        return point.load()
    except _BROKEN as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise _plugin_error(point, f"{why}; repair or uninstall the package that provides it") from error


def _plugin_error(point: EntryPoint, why: str) -> ConfigError:
    return ConfigError(f"{_noun(point.group)} plugin {_title(point)}: {why}")


def _clash_error(noun: str, name: str, first: str, second: str) -> ConfigError:
    return ConfigError(f"{noun} {name!r} is defined by both {first} and {second}; rename or uninstall one of them")


def _title(point: EntryPoint) -> str:
    provider = f" of {point.dist.name}" if point.dist else ""
    return f"{point.name} = {point.value}{provider}"


def _noun(group: str) -> str:
    return group.rpartition(".")[2].removesuffix("s")
