"""Finds related problems: variants of a template, questions of one document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.records.types import Problem

#: Value of ``--cluster``: no problems are related, and their fields are ignored.
NONE = "none"
#: The further fields that say it where a problem names no cluster, the first that it has.
FIELDS = ("cluster", "group")


def clusters_of(
    problems: Sequence[Problem], field: str | None, *, note: Callable[[str], None] = lambda text: None
) -> Mapping[str, str]:
    """Return the cluster by problem id, for problems that name one; the others are unrelated.

    ``field`` is the one of ``Problem.meta`` that holds it; None takes the problem's own cluster, else one of
    ``FIELDS``, and "none" nothing. ``note`` gets a line where no two problems share a cluster, as if none were named.

    Raises:
        ConfigError: no problem has the field, or one holds more there than text or a number.

    >>> asked = [Problem(task="t", prompt=f"{i}?", gold="1", verifier="exact", meta={"page": i // 2}) for i in range(4)]
    >>> sorted(clusters_of(asked, "page").values())
    ['0', '0', '1', '1']
    """
    if field == NONE:
        return {}
    named = {problem.problem_id: _value(problem, field) for problem in problems}
    clusters = {problem_id: str(value) for problem_id, value in named.items() if value is not None}
    if field is not None and not clusters:
        raise ConfigError(f"--cluster {field}: no problem has that field; {_known(problems, field)}")
    if clusters and len(set(clusters.values())) == len(clusters):
        note(f"no two problems share a {field or 'cluster'}: all count as unrelated, as if no cluster were named")
    return clusters


def _value(problem: Problem, field: str | None) -> str | int | float | None:
    if problem.cluster is not None and (field is None or (field == FIELDS[0] and field not in problem.meta)):
        return problem.cluster
    names = FIELDS if field is None else (field,)
    value: Any = next((problem.meta[name] for name in names if name in problem.meta), None)
    if value is None or isinstance(value, str | int | float):
        return value
    if field is None:
        return None
    raise ConfigError(
        f"--cluster {field}: problem {problem.source_id or problem.problem_id} holds a {type(value).__name__} there; "
        "name a field that holds text or a number"
    )


def _known(problems: Sequence[Problem], field: str) -> str:
    fields = sorted({name for problem in problems for name in problem.meta})
    return nearest_names(field, fields) if fields else "they have no further fields"
