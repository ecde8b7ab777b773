"""Cache of weight hashes. The keys are path, size and time of the files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from oversharp.diagnostics.series.weights import IncompleteCheckpointError, check_complete, weight_files, weights_hash

#: The hash of a file younger than this is not cached, because a later write might not change its time stamp.
_SETTLED_S = 2.0
#: Number of threads. Hashing releases the interpreter lock; more threads would exceed the speed of disks.
_MAX_THREADS = 8


class WeightHashes:
    """Cached hashes of weights. A changed file is hashed again; with ``verify`` every file is.

    ``cache`` is the file of earlier hashes, by default in $OVERSHARP_CACHE or the user's cache folder.
    """

    def __init__(self, *, verify: bool = False, cache: Path | None = None) -> None:
        self._verify = verify
        self._cache = cache or _default_cache()
        self._by_files = _load_cache(self._cache)

    def hash_files(self, files: Sequence[Path], *, base_hash: str = "") -> str:
        """Return ``weights_hash`` of the files.

        Raises ``IncompleteCheckpointError``.
        """
        key, newest = _key(files, base_hash)
        stored = None if self._verify else self._by_files.get(key)
        if stored is not None:
            check_complete(files)
            return stored
        computed = weights_hash(files, base_hash=base_hash)
        is_settled = _key(files, base_hash)[0] == key and time.time() - newest > _SETTLED_S
        if is_settled and self._by_files.get(key) != computed:
            self._by_files[key] = computed
            _append(self._cache, key, computed)
        return computed

    def hash_models(self, folders: Iterable[Path]) -> dict[Path, str]:
        """Return the hashes of readable full models by folder, computed in parallel."""
        with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1)) as pool:
            hashes = dict(pool.map(self._hash_model, dict.fromkeys(folders)))
        return {folder: digest for folder, digest in hashes.items() if digest is not None}

    def _hash_model(self, folder: Path) -> tuple[Path, str | None]:
        with suppress(IncompleteCheckpointError, OSError):  # the error is reported when the checkpoint is read
            if files := weight_files(folder):
                return folder, self.hash_files(files)
        return folder, None


def _default_cache() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("OVERSHARP_CACHE") or Path(cache) / "oversharp") / "weights.jsonl"


def _key(files: Sequence[Path], base_hash: str) -> tuple[str, float]:
    """Return the cache key of the files, and the time of the newest file in seconds."""
    stated = [(str(file.resolve()), file.stat()) for file in files]
    listed = [[path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino] for path, stat in stated]
    newest = max((max(stat.st_mtime, stat.st_ctime) for _, stat in stated), default=0.0)
    return json.dumps([base_hash, listed]), newest


def _load_cache(place: Path) -> dict[str, str]:
    hashes: dict[str, str] = {}
    try:
        lines = place.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return hashes
    for line in lines:
        with suppress(ValueError, TypeError):  # a truncated line
            key, digest = json.loads(line)
            hashes[str(key)] = str(digest)
    return hashes


def _append(place: Path, key: str, digest: str) -> None:
    with suppress(OSError):  # hashing works without a cache
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps([key, digest]) + "\n")
