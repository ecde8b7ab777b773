"""oversharp: audits series of RLVR checkpoints for over-sharpening.

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


__all__ = ["open_store", "version"]
