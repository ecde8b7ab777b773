"""Find related problems: by clusters given with the problems, or by nearly equal prompts."""

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

#: Value of ``--cluster`` that ignores all cluster fields: no problems are related.
NONE = "none"
#: Other field names for a problem's cluster. The first field that the problem has is used.
FIELDS = ("cluster", "group")


def find_clusters(
    problems: Sequence[Problem], field: str | None, *, note: Callable[[str], None] = lambda text: None
) -> Mapping[str, str]:
    """Return problem id → cluster for the problems that have one; the others are unrelated.

    ``field`` is the field of ``Problem.meta`` with the cluster. None uses the problem's own cluster, else one of
    ``FIELDS``; "none" uses no clusters. ``note`` is called with a message if no two problems share a cluster.

    Raises ``ConfigError`` if no problem has the field, or its value is neither text nor a number.

    >>> pages = [Problem(task="t", prompt=f"{i}?", gold="1", verifier="exact", meta={"page": i // 2}) for i in range(4)]
    >>> sorted(find_clusters(pages, "page").values())
    ['0', '0', '1', '1']
    """
    if field == NONE:
        return {}
    values = {problem.problem_id: _value(problem, field) for problem in problems}
    clusters = {problem_id: str(value) for problem_id, value in values.items() if value is not None}
    if field is not None and not clusters:
        raise ConfigError(f"--cluster {field}: no problem has that field; {_known(problems, field)}")
    if clusters and len(set(clusters.values())) == len(clusters):
        note(f"no two problems share a {field or 'cluster'}: all problems count as unrelated")
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
        f"--cluster {field}: its value is a {type(value).__name__} at problem "
        f"{problem.source_id or problem.problem_id}; pass a field with texts or numbers"
    )


def _known(problems: Sequence[Problem], field: str) -> str:
    fields = sorted({name for problem in problems for name in problem.meta})
    return nearest_names(field, fields) if fields else "the problems have no other fields"


#: Smallest Jaccard index of the word n-grams (runs) of two near-duplicate prompts.
LEAST_SHARED = 0.6
#: An n-gram in more than this share of a task's prompts is part of the instructions and is ignored.
COMMON_TO_TASK = 0.5
#: Length of an n-gram in words.
WORDS_IN_RUN = 3
#: Prompts with fewer distinct n-grams are too short to compare.
FEWEST_RUNS = 12

_NUMBER = re.compile(r"\d+(?:[.,/]\d+)*")
_NAME = re.compile(r"\b[^\W\d_]*[A-ZÀ-ÖØ-Þ][^\W\d_]*")
# one token: a word, a number or a name, or one character of a script without spaces
_WORD = re.compile(r"[#@]|[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_\u3040-\u30ff\u3400-\u9fff]+")
_ROWS_AT_ONCE = 1024


def find_near_duplicates(prompts: Sequence[str], tasks: Sequence[str]) -> Bool[np.ndarray, " problem"]:
    """Return for each prompt whether it is a near-duplicate: a Jaccard index of at least 0.6.

    It is compared with the other prompts of its task by word trigrams (``runs``). All numbers are the same token, and
    so are all capitalised words, most of which are names: "Ann has 3 pears" equals "Bob has 12 pears".

    Trigrams in more than half of a task's prompts are ignored. They are instructions, or the form of a set with a
    single template. Problems from one generator are independent draws: their common form does not make them related.
    For the same reason prompts with fewer than 12 distinct trigrams, such as ``6 7 12 = 54 :`` or "What is 3 + 4?", are
    never near-duplicates. The intended case is many templates with a few variants each: there the templates were
    sampled, not the variants.

    Only the rarest trigrams of each prompt are looked up. Two sets with a Jaccard index of at least t share one of the
    (1 − t) n + 1 rarest elements of either set. So 10,000 prompts take seconds (Bayardo, Ma, Srikant 2007, "Scaling Up
    All Pairs Similarity Search").

    >>> text = "{} buys {} boxes of pencils, gives half of them to a friend and loses {} on the way home. How many now?"
    >>> variants = [text.format("Ann", 4, 1), text.format("Bob", 10, 3)]
    >>> other = ["A train leaves the old station at noon and reaches the coast after four hours. How fast does it go?",
    ...          "Find the area of the largest circle that fits into a triangle whose sides are all of equal length.",
    ...          "Two cards are drawn without replacement from a shuffled deck. What is the chance that both are red?"]
    >>> find_near_duplicates([*variants, *other], ["t"] * 5).tolist()
    [True, True, False, False, False]
    """
    repeated_P = np.zeros(len(prompts), dtype=bool)
    tasks_P = np.asarray(tasks, dtype=object)
    for task in sorted(set(tasks)):
        own = np.flatnonzero(tasks_P == task)
        repeated_P[own] = _repeated([prompts[index] for index in own])
    return repeated_P


def _repeated(prompts: Sequence[str]) -> Bool[np.ndarray, " problem"]:
    if len(prompts) < 3:  # with two prompts, every shared n-gram is in more than half of the prompts
        return np.zeros(len(prompts), dtype=bool)
    runs = _runs(prompts)
    df_F = np.bincount(runs.indices, minlength=runs.shape[1])
    own = df_F[runs.indices] <= COMMON_TO_TASK * len(prompts)
    runs.data[~own] = 0
    runs.eliminate_zeros()
    runs.data[np.repeat(np.diff(runs.indptr) < FEWEST_RUNS, np.diff(runs.indptr))] = 0
    runs.eliminate_zeros()
    size_P = np.diff(runs.indptr)
    # compare equal rows only once, because a template may have thousands of variants
    first, row_P, n_R = _distinct(runs)
    near_R = n_R > 1
    near_R |= _near_pairs(runs[first], size_P[first], df_F)
    return np.asarray(near_R[row_P] & (size_P > 0))


def _runs(prompts: Sequence[str]) -> csr_matrix:
    """Return the n-grams of each prompt as a sparse matrix, one row per prompt."""
    from scipy.sparse import csr_matrix  # slow to import

    column_of: dict[str, int] = {}
    rows = [sorted({column_of.setdefault(run, len(column_of)) for run in _runs_of(prompt)}) for prompt in prompts]
    columns = np.array([column for row in rows for column in row], dtype=np.int32)
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    shape = (len(prompts), max(1, len(column_of)))
    return csr_matrix((np.ones(len(columns), dtype=np.float32), columns, starts), shape=shape)


def _runs_of(prompt: str) -> list[str]:
    r"""Return the n-grams of a prompt, after replacing every number by one token and every name by another.

    >>> _runs_of("Ann has 3,5 pears.")
    ['@ has #', 'has # pears']
    """
    words = _WORD.findall(_NAME.sub("@", _NUMBER.sub("#", prompt)))
    return [" ".join(words[start : start + WORDS_IN_RUN]) for start in range(len(words) - WORDS_IN_RUN + 1)]


def _distinct(
    runs: csr_matrix,
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " problem"], Int[np.ndarray, " row"]]:
    """Return the first row of each group of equal rows, the group of each row, and the size of each group."""
    runs.sort_indices()
    keys = [runs.indices[start:end].tobytes() for start, end in zip(runs.indptr[:-1], runs.indptr[1:], strict=True)]
    _, first, row_P, n_R = np.unique(
        np.asarray(keys, dtype=object), return_index=True, return_inverse=True, return_counts=True
    )
    return first, row_P, n_R


def _near_pairs(
    runs: csr_matrix, size_R: Int[np.ndarray, " row"], df_F: Int[np.ndarray, " run"]
) -> Bool[np.ndarray, " row"]:
    """Return for each row whether its Jaccard index with another row is at least ``LEAST_SHARED``."""
    rarest = _rarest(runs, df_F)
    near_R = np.zeros(runs.shape[0], dtype=bool)
    for start in range(0, runs.shape[0], _ROWS_AT_ONCE):
        pairs = (rarest[start : start + _ROWS_AT_ONCE] @ rarest.T).tocoo()
        left, right = pairs.row + start, pairs.col
        left, right = left[left < right], right[left < right]
        for first in range(0, len(left), 1 << 18):  # in blocks to limit memory
            a, b = left[first : first + (1 << 18)], right[first : first + (1 << 18)]
            shared = np.asarray(runs[a].multiply(runs[b]).sum(axis=1)).ravel()
            near = shared >= LEAST_SHARED * (size_R[a] + size_R[b] - shared)
            near_R[a[near]] = near_R[b[near]] = True
    return near_R


def _rarest(runs: csr_matrix, df_F: Int[np.ndarray, " run"]) -> csr_matrix:
    """Return the rarest n-grams of each row. Two near-duplicates share at least one of them."""
    row_N = np.repeat(np.arange(runs.shape[0]), np.diff(runs.indptr))
    order = np.lexsort((runs.indices, df_F[runs.indices], row_N))
    rank_N = np.empty(len(order), dtype=np.int64)
    rank_N[order] = np.arange(len(order)) - runs.indptr[row_N[order]]
    kept = runs.copy()
    kept.data[rank_N >= np.floor((1 - LEAST_SHARED) * np.diff(runs.indptr)[row_N] + 1e-9) + 1] = 0
    kept.eliminate_zeros()
    return kept
