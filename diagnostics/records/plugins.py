"""What other distributions add through the entry-point groups ``oversharp.*``, and what a folder of our own defines.

Measures and importers are records, found in the modules of their folder and by entry point. Samplers, tasks and
verifiers are callables under the name of their entry point. A plugin that is broken, or takes a name that is taken,
is a ``ConfigError`` of one line with its entry point and what to do.
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

#: What importing a foreign module raises where it is broken; its author's other errors are not for us to hide.
_BROKEN = (ImportError, AttributeError, NameError, SyntaxError, TypeError, ValueError, RuntimeError, OSError)


class Record(Protocol):
    """A frozen dataclass with a name and a docstring; without one, that of its module stands."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    @property
    def doc(self) -> str:
        """What ``oversharp explain`` prints, or nothing."""
        ...


RecordT = TypeVar("RecordT", bound=Record)


def find_records(kind: type[RecordT], package: ModuleType, group: str) -> Mapping[str, RecordT]:
    """Return every record by name, of the modules in and below ``package`` and of the entry points.

    A module contains records that a decorator made of its functions, or defines the upper-case name of ``kind``
    (``MEASURE``), or a tuple under its plural (``MEASURES``); an entry point names a record or such a module. Raises
    ``ConfigError`` for a broken or clashing plugin.
    """
    found: dict[str, RecordT] = {}
    origin: dict[str, str] = {}
    for where, record in (*_own_records(kind, package), *_plugin_records(kind, group)):
        if record.name in found:
            raise _clash(kind.__name__.lower(), record.name, origin[record.name], where)
        found[record.name], origin[record.name] = record, where
    return MappingProxyType(found)


def find_callables(group: str, own: Collection[str]) -> Mapping[str, EntryPoint]:
    """The entry points of a group by name, none of them loaded. Raises ``ConfigError`` where one is taken.

    ``own`` are the names that oversharp gives away itself.
    """
    found: dict[str, EntryPoint] = {}
    for point in _points(group):
        if point.name in own or point.name in found:
            other = "oversharp" if point.name in own else _title(found[point.name])
            raise _clash(_noun(group), point.name, other, _title(point))
        found[point.name] = point
    return MappingProxyType(found)


def load_callable(point: EntryPoint) -> Callable[..., Any]:
    """What an entry point names. Raises ``ConfigError`` if it cannot be loaded or called."""
    loaded = _loaded(point)
    if not callable(loaded):
        raise _refused(point, f"a {type(loaded).__name__}, not a callable; point it at a class or a function")
    return loaded


def _own_records(kind: type[RecordT], package: ModuleType) -> Iterator[tuple[str, RecordT]]:
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        for record in _records_in(kind, module):
            yield module.__name__, _documented(record, module)


def _plugin_records(kind: type[RecordT], group: str) -> Iterator[tuple[str, RecordT]]:
    for point in _points(group):
        loaded = _loaded(point)
        records = _records_in(kind, loaded) or (loaded,)
        for record in records:
            if not isinstance(record, kind):
                wanted = f"a {kind.__name__} or at a module that defines {kind.__name__.upper()}"
                raise _refused(point, f"a {type(record).__name__}, not a {kind.__name__}; point it at {wanted}")
            yield _title(point), _documented(record, sys.modules[point.module])


def _records_in(kind: type[RecordT], module: object) -> tuple[RecordT, ...]:
    name = kind.__name__.upper()
    one = getattr(module, name, None)
    values = list(vars(module).values()) if isinstance(module, ModuleType) else []
    # a decorator gives its record the module of the function; other records have that of their class
    own = (one for one in values if isinstance(one, kind) and one.__module__ == getattr(module, "__name__", ""))
    return (*getattr(module, f"{name}S", ()), *(() if one is None else (one,)), *own)


def _documented(record: RecordT, module: ModuleType) -> RecordT:
    doc = inspect.cleandoc(record.doc or module.__doc__ or "")
    return record if record.doc == doc else replace(record, doc=doc)


def _points(group: str) -> tuple[EntryPoint, ...]:
    return _points_on(tuple(sys.path), group)


@cache  # reading the metadata of every distribution takes tens of milliseconds
def _points_on(path: tuple[str, ...], group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _loaded(point: EntryPoint) -> object:
    try:
        return point.load()
    except _BROKEN as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise _refused(point, f"{why}; repair or uninstall the package that provides it") from error


def _refused(point: EntryPoint, why: str) -> ConfigError:
    return ConfigError(f"{_noun(point.group)} plugin {_title(point)}: {why}")


def _clash(noun: str, name: str, one: str, other: str) -> ConfigError:
    return ConfigError(f"{noun} {name!r} is defined by both {one} and {other}; rename or uninstall one of them")


def _title(point: EntryPoint) -> str:
    provider = f" of {point.dist.name}" if point.dist else ""
    return f"{point.name} = {point.value}{provider}"


def _noun(group: str) -> str:
    return group.rpartition(".")[2].removesuffix("s")
