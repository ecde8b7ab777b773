"""Small kernels for examples in docstrings and for tests of measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from oversharp.diagnostics.measures.contract import Evidence

_MEMBERS = (
    "checkpoint_id", "position", "role", "sample_index", "task", "related", "problem_id", "response_id", "correct",
    "logp_sum", "n_tokens",
)  # fmt: skip


def gradients(*rows_D: Sequence[float]) -> Float[np.ndarray, "row row"]:
    """Return the kernel of these gradient vectors.

    >>> gradients((1, 0), (1, 2)).tolist()
    [[1.0, 1.0], [1.0, 5.0]]
    """
    gradient_ND = np.array(rows_D, dtype=np.float64)
    return gradient_ND @ gradient_ND.T


def tiny_kernels(
    kernels: Mapping[str, Float[np.ndarray, "row row"]],
    rows: Sequence[tuple[str, str, bool]],
    *,
    logps: Mapping[str, Sequence[float]] | None = None,
    n_tokens: Sequence[int] | None = None,
    related: Mapping[str, str] | None = None,
    why: Mapping[str, str] | None = None,
) -> Evidence:
    """Return evidence of kernels by checkpoint over ``rows``: (problem, roles, correct).

    Roles are ``panel``, ``mode``, ``own`` and ``batch``, separated by spaces. ``own own`` is a response that was
    sampled twice. Row i is the response ``r<i>``. By default each entry of ``logps`` is −1, each of ``n_tokens`` is 1,
    and all problems are related. ``why`` has the checkpoints without a kernel, and the reason for each.

    >>> rows = [("q", "panel own own", True), ("q", "own", False)]
    >>> evidence = tiny_kernels({"base": gradients((1, 0), (0, 1))}, rows)
    >>> evidence.frames["kernel_members"]["role"].tolist()
    ['panel', 'own', 'own', 'own']
    """
    missing = why or {}
    members: list[tuple[object, ...]] = []
    pairs: list[tuple[object, ...]] = []
    for checkpoint_id, kernel_NN in kernels.items():
        next_index: dict[tuple[str, str], int] = {}
        for position, (problem_id, roles, correct) in enumerate(rows):
            group = (related or {}).get(problem_id, "task")
            logp_sum = -1.0 if logps is None else logps[checkpoint_id][position]
            tokens = 1 if n_tokens is None else n_tokens[position]
            for role in roles.split():
                index = next_index.get((problem_id, role), 0)
                next_index[problem_id, role] = index + 1
                member = (checkpoint_id, position, role, index, "task", group, problem_id, f"r{position}")
                members.append((*member, correct, logp_sum, tokens))
        n_rows = len(rows)
        pairs += [(checkpoint_id, i, j, float(kernel_NN[i, j])) for i in range(n_rows) for j in range(i, n_rows)]
    ids = [*kernels, *missing]
    runs = [(i, 1e-9 if i in kernels else None, missing.get(i)) for i in ids]
    return Evidence(
        checkpoints=pd.DataFrame(
            {
                "checkpoint_id": ids,
                "checkpoint": ids,
                "step": range(len(ids)),
                "is_base": [step == 0 for step in range(len(ids))],
            }
        ),
        frames={
            "kernel_runs": pd.DataFrame(runs, columns=["checkpoint_id", "certificate", "why"]),
            "kernel_members": pd.DataFrame(members, columns=list(_MEMBERS)),
            "kernel_pairs": pd.DataFrame(pairs, columns=["checkpoint_id", "row_position", "column_position", "value"]),
        },
        n=4,
        ks=(1,),
    )
