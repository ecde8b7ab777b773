"""Which oversharp this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _distribution_version


def version() -> str:
    """The installed version of oversharp, ``0+unknown`` when it runs from a bare source tree.

    >>> version().count(".") >= 1
    True
    """
    try:
        return _distribution_version("oversharp")
    except PackageNotFoundError:
        return "0+unknown"
