"""Merge nearly equal signatures of a problem into ways."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from oversharp.diagnostics.ways.contract import Signature

#: Number of signatures that are clustered: the most frequent ones. Others are assigned to the nearest cluster.
MOST_CLUSTERED = 256
#: Longest name of a way, in characters. Longer names are shortened and end in a hash.
LONGEST_NAME = 120


def name_ways(counts: Mapping[Signature, int], *, joined_from: float) -> dict[Signature, str]:
    """Return the name of the way of each known signature: the most frequent signature of that way.

    Signatures of the same strategy are clustered by average linkage, down to a mean similarity of ``joined_from``.
    ``counts`` are over all checkpoints. Their order has no effect on the result.

    >>> short = Signature(strategy="arithmetic", steps=("13", "26"), written="13 26")
    >>> longer = Signature(strategy="arithmetic", steps=("13", "2", "26"), parts=("6",), written="13 2 26 (6)")
    >>> other = Signature(strategy="arithmetic", steps=("26", "32", "6"), written="26 32 6")
    >>> sorted(name_ways({short: 5, longer: 1, other: 2}, joined_from=0.6).values())
    ['arithmetic: 13 26', 'arithmetic: 13 26', 'arithmetic: 26 32 6']
    """
    by_strategy: dict[str, list[Signature]] = defaultdict(list)
    for signature in counts:
        if signature.strategy is not None:
            by_strategy[signature.strategy].append(signature)
    names: dict[Signature, str] = {}
    for strategy in sorted(by_strategy):
        ordered = sorted(by_strategy[strategy], key=lambda s: (-counts[s], s.written, s.steps, s.parts))
        names |= _merge(ordered, joined_from)
    return names


def similarities(left: Sequence[Signature], right: Sequence[Signature]) -> Float[np.ndarray, "left right"]:
    """Return similarities from 0 to 1: the number of shared steps divided by the number of all steps.

    A step of one signature that is a part of the other counts as shared. Parts of only one signature do not count. But
    if each has different parts, the two solutions took different routes, and each such pair counts as two steps.

    >>> first = Signature(strategy="arithmetic", steps=("9", "13"), parts=("2",))
    >>> similarities([first], [first, Signature(strategy="arithmetic", steps=("9", "13")),
    ...                      Signature(strategy="arithmetic", steps=("9", "13"), parts=("4",))]).tolist()
    [[1.0, 1.0, 0.5]]
    """
    places: dict[str, int] = {}
    steps_L, parts_L = _table(left, places)
    steps_R, parts_R = _table(right, places)
    width = len(places)
    s_L, p_L, s_R, p_R = (_sparse(rows, width) for rows in (steps_L, parts_L, steps_R, parts_R))
    both_steps = _common(s_L, s_R)
    step_in_part, part_in_step, both_parts = _common(s_L, p_R), _common(p_L, s_R), _common(p_L, p_R)
    shared = both_steps + step_in_part + part_in_step + both_parts
    n_s_L, n_p_L = np.diff(s_L.indptr)[:, None], np.diff(p_L.indptr)[:, None]
    n_s_R, n_p_R = np.diff(s_R.indptr)[None], np.diff(p_R.indptr)[None]
    only_left = n_s_L - both_steps - step_in_part
    only_right = n_s_R - both_steps - part_in_step
    in_conflict = np.minimum(n_p_L - part_in_step - both_parts, n_p_R - step_in_part - both_parts)
    return shared / np.maximum(shared + only_left + only_right + 2 * in_conflict, 1)


def _merge(ordered: Sequence[Signature], joined_from: float) -> dict[Signature, str]:
    leading, others = ordered[:MOST_CLUSTERED], ordered[MOST_CLUSTERED:]
    cluster_S = _clusters(leading, joined_from)
    first = {int(cluster): leading[int(np.argmax(cluster_S == cluster))] for cluster in np.unique(cluster_S)}
    name_of = {signature: _name(first[int(cluster)]) for signature, cluster in zip(leading, cluster_S, strict=True)}
    for start in range(0, len(others), MOST_CLUSTERED):
        rest = others[start : start + MOST_CLUSTERED]
        similarity_RS = similarities(rest, leading)
        nearest_R = similarity_RS.argmax(axis=1)
        for signature, nearest, row_S in zip(rest, nearest_R, similarity_RS, strict=True):
            name_of[signature] = name_of[leading[nearest]] if row_S[nearest] >= joined_from else _name(signature)
    return name_of


def _clusters(signatures: Sequence[Signature], joined_from: float) -> np.ndarray:
    if len(signatures) < 2 or joined_from >= 1:
        keys = {key: number for number, key in enumerate(dict.fromkeys((s.steps, s.parts) for s in signatures))}
        return np.array([keys[s.steps, s.parts] for s in signatures])
    from sklearn.cluster import AgglomerativeClustering  # slow to import, about a second

    # the tolerance 1e-9 also merges clusters whose similarity is exactly joined_from
    clustering = AgglomerativeClustering(
        n_clusters=None, metric="precomputed", linkage="average", distance_threshold=1 - joined_from + 1e-9
    )
    return np.asarray(clustering.fit_predict(1.0 - similarities(signatures, signatures)))


def _table(signatures: Sequence[Signature], places: dict[str, int]) -> tuple[list[list[int]], list[list[int]]]:
    def indices_of(names: Sequence[str]) -> list[int]:
        return [places.setdefault(name, len(places)) for name in names]

    return [indices_of(s.steps) for s in signatures], [indices_of(s.parts) for s in signatures]


def _sparse(rows: Sequence[Sequence[int]], width: int) -> csr_array:
    columns = np.fromiter((place for row in rows for place in row), dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return csr_array((np.ones(len(columns)), columns, starts), shape=(len(rows), width))


def _common(left: csr_array, right: csr_array) -> np.ndarray:
    return np.asarray((left @ right.T).toarray())


def _name(signature: Signature) -> str:
    """Return strategy and steps as name, because strategies may share steps.

    A long name ends in a hash.
    """
    name = f"{signature.strategy}: {signature.written or ' '.join(signature.steps)}"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}… {blake2b(name.encode(), digest_size=4).hexdigest()}"
