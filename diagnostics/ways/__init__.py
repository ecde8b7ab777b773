"""Ways of solving: how a response comes to its answer, read from its text alone.

Where every correct response of a problem is listed, its modes are known; elsewhere the ways take their place. A reader
gives each text a signature, and nearly equal signatures of a problem are joined. A package with a reader of its own,
clusters of embeddings or a judge say, names it by the entry-point group ``oversharp.ways``: a callable without
arguments that gives an object with the attributes of ``oversharp.diagnostics.ways.contract.WaysReader``. Where one is
installed, it reads instead of the built-in one.
"""

from __future__ import annotations

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.plugins import find_callables, load_callable
from oversharp.diagnostics.ways.contract import WaysReader
from oversharp.diagnostics.ways.reader import StepsReader

ENTRY_POINT_GROUP = "oversharp.ways"


def get_reader() -> WaysReader:
    """The reader that is installed, or the built-in one.

    Raises ``ConfigError`` where several are installed, or one is broken or takes the built-in one's name.

    >>> get_reader().name
    'steps'
    """
    outside = find_callables(ENTRY_POINT_GROUP, (StepsReader.name,))
    if len(outside) > 1:
        raise ConfigError(f"several readers of ways are installed: {', '.join(sorted(outside))}; uninstall all but one")
    for point in outside.values():
        reader: WaysReader = load_callable(point)()
        return reader
    return StepsReader()
