"""Names that people give: the nearest known one, file names made of them, and where a store can lie."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from diagnostics.records.errors import StoreError

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def slug(text: str) -> str:
    """``text`` as a part of a file name that every file system and URL takes.

    >>> slug("GRPO α=1, seed 0"), slug("../.."), slug("mode share (exact)")
    ('GRPO-1-seed-0', 'unnamed', 'mode-share-exact')
    """
    return _UNSAFE.sub("-", text).strip("-.") or "unnamed"


def slugs(texts: Iterable[str]) -> Mapping[str, str]:
    """A different slug for every text, also where a file system does not tell upper from lower case.

    >>> slugs(["a b", "A-b", "c"])
    {'a b': 'a-b', 'A-b': 'A-b-2', 'c': 'c'}
    """
    taken: set[str] = set()
    made: dict[str, str] = {}
    for text in texts:
        plain = name = slug(text)
        number = 1
        while name.casefold() in taken:
            number += 1
            name = f"{plain}-{number}"
        taken.add(name.casefold())
        made[text] = name
    return made


def listed(paths: Path | str | Sequence[Path | str]) -> list[Path | str]:
    """Paths as people give them: one, or several.

    >>> listed("runs/a"), listed(("a", "b"))
    (['runs/a'], ['a', 'b'])
    """
    return [paths] if isinstance(paths, str | Path) else list(paths)


def nearest_names(name: str, known: Iterable[str]) -> str:
    """What to tell someone who asked for ``name``: the nearest of ``known``, or all of them.

    >>> nearest_names("gsm8", ["gsm8k", "aime24"])
    'did you mean: gsm8k'
    """
    known = sorted(known)
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean: {', '.join(near)}" if near else f"known are: {', '.join(known)}"


def require_store_place(path: Path) -> None:
    """Refuse a path that cannot be a store's. Raises ``StoreError``."""
    if any(character in str(path.resolve()) for character in "*?["):
        raise StoreError(f"{path.resolve()}: DuckDB takes *, ? and [ in a path for a pattern; pass another --out")
    if path.is_dir():
        raise StoreError(f"{path}: is a directory; pass the audit.duckdb in it")
    if path.parent.suffix.lower() == ".duckdb" and not path.parent.exists():
        raise StoreError(
            f"{path.parent}: a directory is asked for, and this is named like a store; pass --out without it"
        )
    if path.suffix.lower() in (".json", ".jsonl", ".csv", ".parquet"):  # DuckDB would take it for a table
        raise StoreError(f"{path}: by its name no store; name it audit.duckdb")


def require_store_file(path: Path) -> None:
    """Raise ``StoreError`` where there is no file at ``path``."""
    if not path.is_file():
        raise StoreError(f"{path}: no such store; `oversharp audit … --out DIR` or `import … --store FILE` makes one")
