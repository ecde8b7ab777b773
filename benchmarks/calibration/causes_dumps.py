"""Dumps with planted causes of a change of pass@k, imported, graded and measured."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibration.causes_worlds import (
    N_WAYS,
    Laws,
    Planted,
    accepted_rates,
    alpha_mixture,
    base_laws,
    late_laws,
    plant,
)
from oversharp.diagnostics.audit.regrade import regrade
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import import_samples
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.store import Store

N_PROBLEMS, N = 100, 128
#: Planted causes: each alone, pairs whose parts are all known for an imported store, and none.
PLANTED = (
    ("cut_off",), ("unread",), ("grader",), ("sharpening",), ("guesses",), ("lost",), ("ways",),
    ("cut_off", "unread"), ("cut_off", "lost"), ("unread", "lost"), ("sharpening", "cut_off"), ("grader", "lost"), (),
    ("grader", "ways"),
)  # fmt: skip
_FIELDS = ("prompt", "response", "gold", "step", "problem", "index", "finish_reason")


def dump_rows(row_of: Callable[..., Any]) -> Iterator[Any]:
    """Yield one series for each of ``PLANTED``.

    ``row_of`` compares the findings with the planted causes.
    """
    for number, causes in enumerate(PLANTED):
        rng = np.random.default_rng([21, number])
        law_PR = base_laws(alpha_mixture(N_PROBLEMS, rng), rng)
        planted = replace(plant(law_PR, rng), accepts=False, temperature=0.5)
        k_answers = N // 16
        k = k_answers if "sharpening" in causes else N // 2
        true = _true_parts(law_PR, causes, planted, k)
        if "sharpening" not in causes:
            first = _true_parts(law_PR, causes, planted, 1)
            k, true = max(((1, first), (k, true)), key=lambda one: abs(sum(one[1].values())))
        with tempfile.TemporaryDirectory() as folder:
            findings = _through_the_store(Path(folder), law_PR, causes, planted, rng)
        row = row_of(causes, findings, true, k)
        yield replace(row, difficulty="alpha", n_problems=N_PROBLEMS, n=N, path="dump")


def _laws(law_PR: Laws, causes: Sequence[str], planted: Planted) -> Laws:
    """Return ``late_laws``, where sharpening means the answer on which two samples agree."""
    if "sharpening" not in causes:
        return late_laws(law_PR, causes, planted)
    right_P = law_PR[:, :N_WAYS].sum(axis=1)
    squares_PR = np.hstack([right_P[:, None] ** 2, law_PR[:, N_WAYS:] ** 2])
    squares_PR /= squares_PR.sum(axis=1, keepdims=True)
    way_PW = law_PR[:, :N_WAYS] / np.maximum(right_P, 1e-300)[:, None]
    agreed_PR = np.hstack([squares_PR[:, :1] * way_PW, squares_PR[:, 1:]])
    return late_laws(agreed_PR, [one for one in causes if one != "sharpening"], planted)


def _true_parts(law_PR: Laws, causes: Sequence[str], planted: Planted, k: int) -> dict[str, float]:
    """Return the Shapley values of at most two causes."""

    def change(those: Sequence[str]) -> float:
        base_P, _ = accepted_rates(law_PR, [one for one in those if one != "sharpening"], planted)
        _, late_P = accepted_rates(_laws(law_PR, those, planted), [one for one in those if one in _AFTER], planted)
        return float(np.mean((1 - base_P) ** k - (1 - late_P) ** k))

    if len(causes) < 2:
        return {cause: change([cause]) for cause in causes}
    one, other = causes
    whole, first, second = change(causes), change([one]), change([other])
    return {one: (first + whole - second) / 2, other: (second + whole - first) / 2}


#: Fate of the checkpoint's responses after sampling.
_AFTER = ("cut_off", "unread", "grader")


def _through_the_store(
    folder: Path, law_PR: Laws, causes: Sequence[str], planted: Planted, rng: np.random.Generator
) -> list[Finding]:
    has_rewards = "grader" in causes
    lines = [
        json.dumps(one)
        for step, own_PR in ((0, law_PR), (100, _laws(law_PR, causes, planted)))
        for one in _records(own_PR, step, causes, planted, rng)
    ]
    dump = folder / "dump.jsonl"
    dump.write_text("\n".join(lines) + "\n")
    fields = (*_FIELDS, "reward") if has_rewards else _FIELDS
    config = ImportConfig(store=folder / "audit.duckdb", map={name: name for name in fields}, name="planted")
    import_samples([dump], config)
    if has_rewards:
        regrade(config.store, "math", series="planted")
    with Store.open(config.store) as store:
        rows = store.frame(
            """
            SELECT scope, k, value, low, high
            FROM findings
            WHERE series = 'planted' AND measure = 'change_budget'
            ORDER BY k, scope
            """
        )
    return [
        Finding(checkpoint_id="late", measure="change_budget", unit="probability", scope=str(row.scope), k=int(row.k),
                value=_known(row.value), low=_known(row.low), high=_known(row.high),
                why=None if _known(row.value) is not None else "not known")
        for row in rows.itertuples()
    ]  # fmt: skip


def _known(value: Any) -> float | None:
    return None if value is None or np.isnan(value) else float(value)


def _records(
    law_PR: Laws, step: int, causes: Sequence[str], planted: Planted, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    is_late = step > 0
    for i, law_R in enumerate(law_PR):
        said_N = rng.choice(len(law_R), size=N, p=law_R / law_R.sum())
        for index, said in enumerate(said_N.tolist()):
            correct, cut = said < N_WAYS, is_late and "cut_off" in causes and rng.random() < planted.cut_P[i]
            unread = is_late and "unread" in causes and rng.random() < planted.unread_P[i]
            if not is_late and not correct and "guesses" in causes and rng.random() < planted.guess_rate:
                correct = True
            rejected = is_late and "grader" in causes and rng.random() < planted.rejected_P[i]
            yield {
                "prompt": f"Find the number of parcel {i}.",
                "problem": f"p{i}",
                "gold": str(_gold(i)),
                "step": step,
                "index": index,
                "response": _response(i, said, correct, cut=cut, unread=unread, rng=rng),
                "finish_reason": "length" if cut else "stop",
                "reward": float(correct and not rejected and not cut and not unread),
            }


def _gold(problem: int) -> int:
    return 1000 + 7 * problem


def _response(problem: int, said: int, correct: bool, *, cut: bool, unread: bool, rng: np.random.Generator) -> str:
    """Write a response with unique words, so that no two are copies.

    A way is a product and a sum that lead to the answer.
    """
    words = " ".join("".join(chr(97 + letter) for letter in rng.integers(0, 26, 6)) for _ in range(3))
    if cut:
        return f"Let me see, {words}, and so we have to look at"
    if unread:
        return f"This is beyond me, {words}, I cannot say."
    answer = _gold(problem) if correct else _gold(problem) + 1 + said
    many, price = 3 + said % N_WAYS, 11 + 2 * (said % N_WAYS)
    between = many * price
    return (
        f"Let me see, {words}. {many} * {price} = {between}. {between} + {answer - between} = {answer}. "
        f"The answer is \\boxed{{{answer}}}."
    )
