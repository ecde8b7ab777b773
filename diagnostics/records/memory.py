"""How much memory this process could still take, and results that must not take more."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.errors import StoreError

if TYPE_CHECKING:
    import pandas as pd

#: How many compiled products a CPU's library keeps, and where it is told. Its own 1,024 are one for every number of
#: tokens that ever came together, for every layer: hundreds of MiB in which few are met again.
FEW_PRODUCTS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
#: Rows of a part whose size stands for that of all its rows.
_LOOKED_AT = 1024


def free_bytes() -> float:
    """Of the machine and of its control group; infinite where nobody says."""
    limits = []
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        limits.append(float(lines["MemAvailable"].split()[0]) * 1024)
    group = Path("/sys/fs/cgroup")
    if (group / "memory.max").is_file() and (most := (group / "memory.max").read_text().strip()) != "max":
        limits.append(float(most) - float((group / "memory.current").read_text()))
    return min(limits, default=float("inf"))


def trim_heap() -> None:
    """Give back to the machine what this process has freed; where its C library cannot, nothing happens.

    The library keeps the holes below the highest block that is in use: hundreds of MiB after a gradient kernel of a
    model of 135 million weights.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def half_of_free_gib() -> float:
    """What queries may take where nobody says: half of what is free; infinite where nobody knows."""
    return free_bytes() / 2 / 2**30


def joined_within(parts: Iterable[pd.DataFrame], most_bytes: float, path: Path) -> pd.DataFrame:
    """Parts of a result of the store at ``path`` as one frame, of which there is one at least.

    Raises ``StoreError`` once they take more than ``most_bytes``: so nothing is read that does not fit.
    """
    import pandas as pd

    held: list[pd.DataFrame] = []
    n_bytes, n_rows = 0.0, 0
    for part in parts:
        looked_at = part.head(_LOOKED_AT)
        n_bytes += float(looked_at.memory_usage(deep=True).sum()) / max(len(looked_at), 1) * len(part)
        n_rows += len(part)
        if n_bytes > most_bytes:
            raise StoreError(
                f"{path}: the result is larger than the {most_bytes / 2**30:.3g} GiB that it may take (after "
                f"{n_rows:,} rows); ask for fewer rows or columns, count in SQL, give a larger --memory-gib "
                "(memory_gib=… in Python), or take it in parts: sql --csv, or Store.parts"
            )
        held.append(part)
    return held[0] if len(held) == 1 else pd.concat(held, ignore_index=True)
