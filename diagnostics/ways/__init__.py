"""Ways of solving: how a response computes its answer, derived from its text alone.

Some problems list all correct responses, which are their modes. For other problems, ways replace modes. A reader maps
each text to a signature. Nearly equal signatures of a problem are merged into one way. A package can provide another
reader (embedding clusters, an LLM judge) through the entry-point group ``oversharp.ways``: a callable without arguments
that returns an object with the attributes of ``oversharp.diagnostics.ways.contract.WaysReader``. An installed reader
replaces the built-in one.
"""

from __future__ import annotations

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.plugins import find_callables, load_callable
from oversharp.diagnostics.ways.contract import WaysReader
from oversharp.diagnostics.ways.reader import StepsReader

ENTRY_POINT_GROUP = "oversharp.ways"


def get_reader() -> WaysReader:
    """Return the installed reader, or the built-in one.

    Raises ``ConfigError`` if several are installed, or if one is broken or has the name of the built-in reader.

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
