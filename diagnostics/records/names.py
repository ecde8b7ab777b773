"""Nearest known names for unknown ones, file names from user names, and paths of stores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from oversharp.diagnostics.records.errors import StoreError

#: File name of the store in the directory of an audit.
STORE_NAME = "audit.duckdb"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
#: Names of settings and commands in other tools → our names. The first of our names that exists is used.
SYNONYMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "backend": ("engine", "sampler"),
        "base_model": ("base",),
        "checkpoints": ("steps",),
        "data": ("problems",),
        "database": ("store",),
        "dataset": ("problems",),
        "db": ("store",),
        "delete": ("drop",),
        "dir": ("out", "output_dir"),
        "engine": ("sampler",),
        "eval": ("audit",),
        "evaluate": ("audit",),
        "figs": ("figure", "figures"),
        "force": ("replace",),
        "generations": ("n", "group_size"),
        "gpus": ("tensor_parallel",),
        "grader": ("verifier",),
        "lr": ("learning_rate",),
        "out": ("store",),
        "max_length": ("max_tokens",),
        "max_model_length": ("max_model_len",),
        "max_new_tokens": ("max_tokens",),
        "max_samples": ("limit",),
        "model": ("base", "checkpoint"),
        "model_path": ("model", "base"),
        "n_rollouts": ("n", "group_size"),
        "n_samples": ("n",),
        "num_generations": ("group_size", "n"),
        "num_gpus": ("tensor_parallel",),
        "num_problems": ("limit", "problems"),
        "num_repeats": ("n",),
        "num_return_sequences": ("n", "group_size"),
        "num_rollouts": ("n", "group_size"),
        "num_samples": ("n",),
        "num_steps": ("max_steps",),
        "output": ("out", "output_dir"),
        "output_path": ("out", "output_dir"),
        "overwrite": ("replace",),
        "pass_k": ("k",),
        "plot": ("export",),
        "reference_model": ("reference",),
        "remove": ("drop",),
        "repeats": ("n",),
        "rm": ("drop",),
        "rollouts": ("n", "group_size"),
        "run_name": ("name", "series"),
        "samples": ("n",),
        "samples_per_problem": ("n",),
        "save_dir": ("out", "output_dir"),
        "scorer": ("verifier",),
        "show": ("view",),
        "silent": ("quiet",),
        "temp": ("temperature",),
        "template": ("prompt_template",),
        "tp": ("tensor_parallel",),
    }
)


def slug(text: str) -> str:
    """Return ``text`` in a form that is valid in file names of every file system and in URLs.

    >>> slug("GRPO α=1, seed 0"), slug("../.."), slug("mode share (exact)")
    ('GRPO-1-seed-0', 'unnamed', 'mode-share-exact')
    """
    return _UNSAFE.sub("-", text).strip("-.") or "unnamed"


def slugs(texts: Iterable[str]) -> Mapping[str, str]:
    """Return a slug for each text. The slugs are distinct, even on case-insensitive file systems.

    >>> slugs(["a b", "A-b", "c"])
    {'a b': 'a-b', 'A-b': 'A-b-2', 'c': 'c'}
    """
    used: set[str] = set()
    slug_of: dict[str, str] = {}
    for text in texts:
        plain = name = slug(text)
        number = 1
        while name.casefold() in used:
            number += 1
            name = f"{plain}-{number}"
        used.add(name.casefold())
        slug_of[text] = name
    return slug_of


def as_path_list(paths: Path | str | Sequence[Path | str]) -> list[Path | str]:
    """Return one path or several paths as a list.

    >>> as_path_list("runs/a"), as_path_list(("a", "b"))
    (['runs/a'], ['a', 'b'])
    """
    return [paths] if isinstance(paths, str | Path) else list(paths)


def synonym(name: str, known: Iterable[str]) -> str | None:
    """Return the name in ``known`` of the setting that other tools call ``name``, or None.

    >>> synonym("num_samples", ["n", "entropy_samples"]), synonym("model", ["n"])
    ('n', None)
    """
    known = set(known)
    return next((ours for ours in SYNONYMS.get(name, ()) if ours in known), None)


def nearest_names(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown ``name``: the nearest known names, or all of them.

    >>> nearest_names("gsm8", ["gsm8k", "aime24"]), nearest_names("num_samples", ["n", "entropy_samples"])
    ('did you mean: gsm8k', 'did you mean: n')
    """
    known = sorted(known)
    meant = synonym(name, known)
    near = [meant] if meant else get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean: {', '.join(near)}" if near else f"known names: {', '.join(known)}"


def store_file(given: Path | str) -> Path:
    """Return the store at ``given``, which is a file, or a directory that contains audit.duckdb."""
    path = Path(given)
    inside = path / STORE_NAME
    return inside if path.is_dir() and inside.is_file() else path


def require_store_place(path: Path) -> None:
    """Raise ``StoreError`` for a path at which no store can be created."""
    if any(character in str(path.resolve()) for character in "*?["):
        raise StoreError(f"{path.resolve()}: DuckDB reads *, ? and [ in a path as a glob pattern; pass another --out")
    if path.is_dir():
        raise StoreError(f"{path}: is a directory without an {STORE_NAME}; name the file, such as {path / STORE_NAME}")
    if path.parent.suffix.lower() == ".duckdb" and not path.parent.exists():
        raise StoreError(f"{path.parent}: --out takes a directory, but this is the name of a store; pass the directory")
    if path.suffix.lower() in (".json", ".jsonl", ".csv", ".parquet"):  # DuckDB would read it as a table
        raise StoreError(f"{path}: the suffix is that of a data file; name the store audit.duckdb")


def require_store_file(path: Path) -> None:
    """Raise ``StoreError`` where there is no file at ``path``."""
    if not path.is_file():
        raise StoreError(
            f"{path}: no such store; create it with `oversharp audit … --out DIR` or `import … --store FILE`"
        )
