"""Free memory of this process, and a memory limit for query results."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.errors import StoreError

if TYPE_CHECKING:
    import pandas as pd

#: Environment variable, and value, that limit the primitive cache of oneDNN. By default it keeps 1,024 entries, one per
#: token count and layer. They take hundreds of MiB, and most are never used again.
ONEDNN_CACHE_LIMIT = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
#: Number of rows of a part that are measured to extrapolate its size.
_MEASURED_ROWS = 1024


def free_bytes() -> float:
    """Return the free memory of the machine and its control group, in bytes; infinite if unknown."""
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
    """Return freed memory to the operating system, if the C library supports it.

    By default the C library keeps freed blocks below the highest block in use. After a gradient kernel of a model with
    135 million weights these are hundreds of MiB.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def half_of_free_gib() -> float:
    """Return the default memory limit of queries: half of the free memory, in GiB; infinite if unknown."""
    return free_bytes() / 2 / 2**30


def concat_within(parts: Iterable[pd.DataFrame], most_bytes: float, path: Path) -> pd.DataFrame:
    """Concatenate the parts (at least one) of a query result of the store at ``path``.

    Raises ``StoreError`` as soon as the parts exceed ``most_bytes``.
    """
    import pandas as pd

    frames: list[pd.DataFrame] = []
    n_bytes, n_rows = 0.0, 0
    for part in parts:
        measured = part.head(_MEASURED_ROWS)
        n_bytes += float(measured.memory_usage(deep=True).sum()) / max(len(measured), 1) * len(part)
        n_rows += len(part)
        if n_bytes > most_bytes:
            raise StoreError(
                f"{path}: the result exceeds its limit of {most_bytes / 2**30:.3g} GiB (after "
                f"{n_rows:,} rows); select fewer rows or columns, count in SQL, raise --memory-gib "
                "(memory_gib=… in Python), or take it in parts: sql --csv, or Store.parts"
            )
        frames.append(part)
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
