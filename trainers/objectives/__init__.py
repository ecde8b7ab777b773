"""Objectives by name: one file in this folder is one objective, the file's name is the objective's name.

A file ``NAME.py`` that defines ``OBJECTIVE`` is all it takes to add one. Listing names imports none of them.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from diagnostics.errors import ConfigError

if TYPE_CHECKING:
    from trainers.objectives.contract import Objective

_NOT_OBJECTIVES = frozenset({"contract"})


def names() -> tuple[str, ...]:
    """Names of all objectives, sorted.

    >>> "grpo" in names() and "iac" in names() and "contract" not in names()
    True
    """
    return tuple(sorted({module.name for module in iter_modules(__path__)} - _NOT_OBJECTIVES))


def check_name(name: str) -> None:
    """Raise ``ConfigError`` with the nearest names unless ``name`` is an objective."""
    known = names()
    if name not in known:
        nearest = get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else f"choose from {', '.join(known)}"
        raise ConfigError(f"algorithm: no objective is called {name!r}; {hint}")


def get(name: str) -> Objective:
    """The objective called ``name``; loads torch. Raises ``ConfigError`` if there is none."""
    check_name(name)
    objective: Objective = import_module(f"{__name__}.{name}").OBJECTIVE
    return objective


def describe_algorithms() -> list[tuple[str, str]]:
    """(name, title and source) of all objectives, sorted by name; loads torch.

    >>> [name for name, _ in describe_algorithms()][:2]
    ['grpo', 'iac']
    """
    return [(name, f"{objective.title} ({objective.source})") for name in names() for objective in [get(name)]]
