"""oversharp: audits series of RLVR checkpoints for over-sharpening.

The verbs of the command line stand in ``diagnostics.api``.

>>> import diagnostics
>>> diagnostics.version().count(".") >= 1
True
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _distribution_version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from diagnostics import api as api
    from diagnostics.store import Store


def version() -> str:
    """The installed version of oversharp, ``0+unknown`` when it runs from a bare source tree."""
    try:
        return _distribution_version("oversharp")
    except PackageNotFoundError:
        return "0+unknown"


def open_store(path: Path | str) -> Store:
    """Open a store read-only, for notebooks: ``open_store(path).frame("FROM findings")``, ``.verdict("grpo")``."""
    from pathlib import Path

    from diagnostics.store import Store

    return Store.open(Path(path), read_only=True)


def __getattr__(name: str) -> ModuleType:
    """``diagnostics.api`` after ``import diagnostics`` alone."""
    if name != "api":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return import_module("diagnostics.api")


__all__ = ["api", "open_store", "version"]
