"""Gathers the scores of a file by name, where a tool wrote several of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from oversharp.diagnostics.ingest.formats.contract import ScoreTable


def gather_scores(rows: Iterable[tuple[str, Mapping[str, float]]], *, taken: str, flag: str) -> ScoreTable | None:
    """Return the mean score of each problem by name, given the scores of each response; None with one name or none.

    >>> rows = [("a", {"strict": 0.0, "loose": 1.0}), ("a", {"strict": 1.0, "loose": 1.0})]
    >>> gather_scores(rows, taken="strict, the first", flag="--reward NAME").score_of
    {'strict': {'a': 0.5}, 'loose': {'a': 1.0}}
    """
    values: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for problem, scores in rows:
        for name, score in scores.items():
            values[name][problem].append(score)
    if len(values) < 2:
        return None
    means = {
        name: {problem: sum(scores) / len(scores) for problem, scores in by_problem.items()}
        for name, by_problem in values.items()
    }
    return ScoreTable(score_of=means, taken=taken, flag=flag)
