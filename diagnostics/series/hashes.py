"""Cache of weight hashes, keyed by path, size and time of the files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from oversharp.diagnostics.series.weights import IncompleteCheckpointError, check_complete, weight_files, weights_hash

#: A younger file may be written again within the resolution of its time.
_SETTLED_S = 2.0
#: Hashing releases the interpreter lock; more threads would exceed what disks deliver.
_MAX_THREADS = 8


class WeightHashes:
    """Cached hashes of weights, computed again if a file changed, or always with ``verify``.

    ``cache`` is the file of earlier hashes, by default in $OVERSHARP_CACHE or the user's cache.
    """

    def __init__(self, *, verify: bool = False, cache: Path | None = None) -> None:
        self._verify = verify
        self._cache = cache or _default_cache()
        self._by_files = _load_cache(self._cache)

    def hash_files(self, files: Sequence[Path], *, base_hash: str = "") -> str:
        """Return ``weights_hash``. Raises ``IncompleteCheckpointError``."""
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
        with suppress(IncompleteCheckpointError, OSError):  # reported when the checkpoint is read
            if files := weight_files(folder):
                return folder, self.hash_files(files)
        return folder, None


def _default_cache() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("OVERSHARP_CACHE") or Path(cache) / "oversharp") / "weights.jsonl"


def _key(files: Sequence[Path], base_hash: str) -> tuple[str, float]:
    """Return the cache key of the files, and the time of the newest, in seconds."""
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
    with suppress(OSError):  # without a cache, weights are hashed again
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps([key, digest]) + "\n")
