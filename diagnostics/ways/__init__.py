"""Ways of solving: how a response comes to its answer, read from its text alone.

Where every correct response of a problem is listed, its modes are known; elsewhere the ways take their place. A reader
gives each text a signature, and nearly equal signatures of a problem are joined. Outside packages add a reader through
the entry-point group ``oversharp.ways``: a callable without arguments that gives an object with the attributes of
``diagnostics.ways.contract.WaysReader``.
"""

from __future__ import annotations

from difflib import get_close_matches

from diagnostics.records.errors import ConfigError
from diagnostics.records.plugins import find_callables, load_callable
from diagnostics.ways.contract import WaysReader
from diagnostics.ways.reader import StepsReader

ENTRY_POINT_GROUP = "oversharp.ways"
BUILT_IN = StepsReader.name


def reader_names() -> tuple[str, ...]:
    """All names that ``get_reader`` knows, sorted."""
    return tuple(sorted({BUILT_IN, *find_callables(ENTRY_POINT_GROUP, (BUILT_IN,))}))


def get_reader(name: str = BUILT_IN) -> WaysReader:
    """The reader of that name. Raises ``ConfigError`` for an unknown one, and for a plugin that is broken or clashes.

    >>> get_reader().version
    1
    """
    if name == BUILT_IN:
        return StepsReader()
    outside = find_callables(ENTRY_POINT_GROUP, (BUILT_IN,))
    if name not in outside:
        near = get_close_matches(name, reader_names(), n=3) or reader_names()
        raise ConfigError(f"reader of ways {name!r} is unknown; use one of: {', '.join(near)}")
    reader: WaysReader = load_callable(outside[name])()
    return reader
