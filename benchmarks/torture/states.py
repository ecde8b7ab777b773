"""Content of results by which two runs are compared: every stored row, without times and paths.

For a store these are samples, grades, teacher-forced scores with their tokens, kernels, findings, verdicts, looks,
confirmations, and the progress of imports. Counts and texts are equal to the bit. Floating-point results may differ by
``ROUNDING``, if a fault changed the shape of batches. For a training these are the weights of all checkpoints, the
metrics without times, and the rollouts.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

#: Absolute and relative.
ROUNDING = 1e-5

_TABLES = {
    "samples": """
        SELECT checkpoint_id, settings_id, problem_id, greedy, sample_index, text, token_ids::VARCHAR AS token_ids,
            finish_reason, logp_sum_raw
        FROM samples ORDER BY ALL""",
    "grades": "SELECT problem_id, response_id, verifier, answer, mode, reward, correct, state FROM grades ORDER BY ALL",
    "scores": """
        SELECT r.checkpoint_id, r.problem_id, r.response_id, r.n_tokens, count(t.token_logps) AS n_lists, r.logp_sum
        FROM response_logps AS r
        LEFT JOIN response_tokens AS t USING (checkpoint_id, problem_id, settings_id, response_id)
        GROUP BY ALL ORDER BY ALL""",
    "kernels": "SELECT kernel_id, row_position, column_position, value FROM kernel_values ORDER BY ALL",
    "checkpoints": "SELECT series, step, checkpoint, checkpoint_id FROM series_checkpoints ORDER BY ALL",
    "counts": "SELECT checkpoint_id, series, step, problem_id, n, n_correct FROM problem_counts ORDER BY ALL",
    "findings": "FROM findings ORDER BY ALL",
    "verdicts": "SELECT series, label, sentence, p_exact, p_population, k_most FROM verdicts ORDER BY ALL",
    "looks": "SELECT series, number, steps::VARCHAR AS steps FROM verdict_looks ORDER BY ALL",
    "confirmations": "SELECT * EXCLUDE (audit_id) FROM confirmations ORDER BY ALL",
    "imports": "SELECT series, format, verifier, n_bytes, lines_done, n_samples, complete FROM imports ORDER BY ALL",
    "faults": "SELECT series, why, n, first_line FROM import_faults ORDER BY ALL",
    "left out": """
        SELECT series, json_keys(provenance -> 'left_out')::VARCHAR AS left_out, provenance = '{}' AS unfinished
        FROM current_audits ORDER BY ALL""",
}
_TIMED = ("_s", "_at", "per_second")

State = Mapping[str, pd.DataFrame]


def write_state() -> None:
    """Write the compared content of STORE to TARGET in a forked process, or one line why it cannot be read."""
    from oversharp.diagnostics.records.errors import OversharpError
    from oversharp.diagnostics.store import Store

    store_path, target = map(Path, sys.argv[1:])
    try:
        with Store.open(store_path, read_only=True) as store:
            state = {name: store.frame(query) for name, query in _TABLES.items()}
            state["notes"] = pd.DataFrame({"note": store.notes})
    except OversharpError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)  # exits like the command, because libraries may print something otherwise
    target.write_bytes(pickle.dumps(state))
    os._exit(0)


def trained_state(run: Path) -> State:
    """Return the compared content of a training."""
    files = sorted(run.glob("checkpoint-*/*.safetensors"))
    rollouts = [pd.read_parquet(path) for path in sorted((run / "rollouts").glob("*.parquet"))]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timeless = [{name: value for name, value in line.items() if not name.endswith(_TIMED)} for line in lines]
    left = [path.name for path in run.rglob("tmp-*")]
    return {
        "weights": pd.DataFrame(
            {"file": [str(f.relative_to(run)) for f in files], "hash": [_hash_of(file) for file in files]}
        ),
        "metrics": pd.DataFrame(timeless).astype(str),
        "rollouts": pd.concat(rollouts, ignore_index=True).astype(str) if rollouts else pd.DataFrame(),
        "left": pd.DataFrame({"name": left}),
    }


def _hash_of(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def difference(
    held: State,
    expected: State,
    *,
    without: str | None = None,
    only: Sequence[str] | None = None,
    lacking: Sequence[str] = (),
) -> str | None:
    """Return where two results differ, in words; None if they are equal.

    Ignored are rows of the checkpoint ``without`` (its label), tables that are not in ``only``, and tables and columns
    in ``lacking``.
    """
    ids = _ids_of(held, without) | _ids_of(expected, without)
    for name in only or expected:
        if name in lacking:
            continue
        ours, theirs = (_less(state[name], ids, lacking) for state in (held, expected))
        if list(ours.columns) != list(theirs.columns) or len(ours) != len(theirs):
            return f"{name}: {len(ours)} rows instead of {len(theirs)}"
        for column in theirs.columns:
            n = _n_unequal(ours[column], theirs[column])
            if n:
                return f"{name}: {n} of {len(theirs)} rows differ in {column}"
    return None


def _ids_of(state: State, label: str | None) -> set[str]:
    if label is None:
        return set()
    checkpoints = state["checkpoints"]
    return set(checkpoints.loc[checkpoints["checkpoint"] == label, "checkpoint_id"])


def _less(frame: pd.DataFrame, ids: set[str], lacking: Sequence[str]) -> pd.DataFrame:
    if ids and "checkpoint_id" in frame:
        frame = frame[~frame["checkpoint_id"].isin(ids)]
    return frame.drop(columns=[name for name in lacking if name in frame]).reset_index(drop=True)


def _n_unequal(ours: pd.Series[Any], theirs: pd.Series[Any]) -> int:
    if pd.api.types.is_float_dtype(theirs) and pd.api.types.is_numeric_dtype(ours):
        near = np.isclose(ours.astype(float), theirs.astype(float), rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
        return int((~near).sum())
    same = (ours == theirs) | (ours.isna() & theirs.isna())
    return int((~same.astype(bool)).sum())
