"""Related problems: clusters that the problems name, and prompts that nearly repeat another."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.records.types import Problem

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

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


#: Share of common runs of words from which two prompts are near-duplicates.
LEAST_SHARED = 0.6
#: What more than this share of a task's prompts say is how the task asks, and relates no two of them.
COMMON_TO_TASK = 0.5
#: Words that are compared together.
WORDS_IN_RUN = 3
#: A prompt with fewer different runs of words than this says too little to be compared.
FEWEST_RUNS = 12

_NUMBER = re.compile(r"\d+(?:[.,/]\d+)*")
_NAME = re.compile(r"\b[^\W\d_]*[A-ZÀ-ÖØ-Þ][^\W\d_]*")
# a word, a number or a name; of scripts that set no spaces, a character
_WORD = re.compile(r"[#@]|[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_\u3040-\u30ff\u3400-\u9fff]+")
_N_FEATURES = 1 << 22
_ROWS_AT_ONCE = 1024


def near_duplicates(prompts: Sequence[str], tasks: Sequence[str]) -> Bool[np.ndarray, " problem"]:
    """Return whether another prompt of the same task nearly repeats each prompt: a Jaccard index of at least 0.6.

    Compared are the runs of three words that a prompt holds, with every number and every capitalised word (most of them
    names) put for one token each: "Ann has 3 pears" and "Bob has 12 pears" are the same.

    What more than half of a task's prompts say does not count: instructions around every question, and the form of a
    set that is one template altogether. Such a set is drawn from a generator, and its problems stand for that
    generator's, each as independent as the next: they are not related for the form alone. For the same reason prompts
    with fewer than 12 different runs of words, as ``6 7 12 = 54 :`` or "What is 3 + 4?", are not judged. Variants of
    many templates, each with a few, are what this finds: there the templates are what was drawn, not the variants.

    Of each prompt only its rarest runs are looked up: two sets with a Jaccard index of at least t share one of the
    (1 − t) n + 1 rarest of either. So 10,000 prompts take seconds (Bayardo, Ma, Srikant 2007, "Scaling Up All Pairs
    Similarity Search").

    >>> said = "{} buys {} boxes of pencils, gives half of them to a friend and loses {} on the way home. How many now?"
    >>> asked = [said.format("Ann", 4, 1), said.format("Bob", 10, 3)]
    >>> other = ["A train leaves the old station at noon and reaches the coast after four hours. How fast does it go?",
    ...          "Find the area of the largest circle that fits into a triangle whose sides are all of equal length.",
    ...          "Two cards are drawn without replacement from a shuffled deck. What is the chance that both are red?"]
    >>> near_duplicates([*asked, *other], ["t"] * 5).tolist()
    [True, True, False, False, False]
    """
    repeated_P = np.zeros(len(prompts), dtype=bool)
    tasks_P = np.asarray(tasks, dtype=object)
    for task in sorted(set(tasks)):
        own = np.flatnonzero(tasks_P == task)
        repeated_P[own] = _repeated([prompts[index] for index in own])
    return repeated_P


def _repeated(prompts: Sequence[str]) -> Bool[np.ndarray, " problem"]:
    if len(prompts) < 3:  # with two prompts every shared run is in more than half
        return np.zeros(len(prompts), dtype=bool)
    runs = _runs(prompts)
    df_F = np.bincount(runs.indices, minlength=runs.shape[1])
    own = df_F[runs.indices] <= COMMON_TO_TASK * len(prompts)
    runs.data[~own] = 0
    runs.eliminate_zeros()
    runs.data[np.repeat(np.diff(runs.indptr) < FEWEST_RUNS, np.diff(runs.indptr))] = 0
    runs.eliminate_zeros()
    size_P = np.diff(runs.indptr)
    # equal prompts are one row: of variants of a template there may be thousands
    first, row_P, n_R = _distinct(runs)
    near_R = n_R > 1
    near_R |= _near_pairs(runs[first], size_P[first], df_F)
    return np.asarray(near_R[row_P] & (size_P > 0))


def _runs(prompts: Sequence[str]) -> csr_matrix:
    """Runs of words in each prompt, one row per prompt."""
    from sklearn.feature_extraction.text import HashingVectorizer  # takes a second to import

    vectorizer = HashingVectorizer(
        analyzer=_runs_of, n_features=_N_FEATURES, binary=True, norm=None, alternate_sign=False, dtype=np.float32
    )
    return vectorizer.transform(prompts).tocsr()


def _runs_of(prompt: str) -> list[str]:
    r"""Return the runs of words of a prompt, numbers and names put for one token each.

    >>> _runs_of("Ann has 3,5 pears.")
    ['@ has #', 'has # pears']
    """
    words = _WORD.findall(_NAME.sub("@", _NUMBER.sub("#", prompt)))
    return [" ".join(words[start : start + WORDS_IN_RUN]) for start in range(len(words) - WORDS_IN_RUN + 1)]


def _distinct(
    runs: csr_matrix,
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " problem"], Int[np.ndarray, " row"]]:
    """Return the first row of each group of equal rows, the group of every row, and the size of each group."""
    runs.sort_indices()
    keys = [runs.indices[start:end].tobytes() for start, end in zip(runs.indptr[:-1], runs.indptr[1:], strict=True)]
    _, first, row_P, n_R = np.unique(
        np.asarray(keys, dtype=object), return_index=True, return_inverse=True, return_counts=True
    )
    return first, row_P, n_R


def _near_pairs(
    runs: csr_matrix, size_R: Int[np.ndarray, " row"], df_F: Int[np.ndarray, " run"]
) -> Bool[np.ndarray, " row"]:
    """Return whether another row shares ``LEAST_SHARED`` of all runs with each row."""
    rarest = _rarest(runs, df_F)
    near_R = np.zeros(runs.shape[0], dtype=bool)
    for start in range(0, runs.shape[0], _ROWS_AT_ONCE):
        pairs = (rarest[start : start + _ROWS_AT_ONCE] @ rarest.T).tocoo()
        one, other = pairs.row + start, pairs.col
        one, other = one[one < other], other[one < other]
        for first in range(0, len(one), 1 << 18):  # rows per block, which bounds the memory of pairs
            a, b = one[first : first + (1 << 18)], other[first : first + (1 << 18)]
            shared = np.asarray(runs[a].multiply(runs[b]).sum(axis=1)).ravel()
            near = shared >= LEAST_SHARED * (size_R[a] + size_R[b] - shared)
            near_R[a[near]] = near_R[b[near]] = True
    return near_R


def _rarest(runs: csr_matrix, df_F: Int[np.ndarray, " run"]) -> csr_matrix:
    """Return the rarest runs of each row, at least one of which every near row has."""
    row_N = np.repeat(np.arange(runs.shape[0]), np.diff(runs.indptr))
    order = np.lexsort((runs.indices, df_F[runs.indices], row_N))
    rank_N = np.empty(len(order), dtype=np.int64)
    rank_N[order] = np.arange(len(order)) - runs.indptr[row_N[order]]
    kept = runs.copy()
    kept.data[rank_N >= np.floor((1 - LEAST_SHARED) * np.diff(runs.indptr)[row_N] + 1e-9) + 1] = 0
    kept.eliminate_zeros()
    return kept
