"""Stores with made-up samples: one stream of samples, stopped by a rule or drawn up to the cap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from oversharp.diagnostics.audit.measure import conclude, measure
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import (
    AuditKey,
    Checkpoint,
    Grade,
    Problem,
    Sample,
    SamplingSettings,
    Series,
    response_id,
)
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.store import Store
from tests.audit.small_audits import audit_key

SETTINGS = SamplingSettings(sampler="transformers", max_tokens=64)
FIRST, ENOUGH, CAP, CAP_OF_BASE = 8, 3, 64, 128
STEPS = (0, 20, 40)
N_PROBLEMS = 40
PROBLEMS = [
    Problem(task="sums", prompt=f"What is {i} + {i}?", gold=f"{2 * i}", verifier="exact") for i in range(N_PROBLEMS)
]
#: By name: problems that are lost at the last step, rarely solved, never solved, gained, or always solved.
LOST, RARE, NEVER, GAINED, EASY = (PROBLEMS[i].problem_id for i in range(5))


def success_rates() -> dict[int, np.ndarray]:
    """Success rate of each problem at every step. Training sharpens: hard problems get harder."""
    base_P = np.random.default_rng(3).beta(0.5, 1.5, N_PROBLEMS)
    base_P[:5] = 0.5, 0.02, 0.0, 0.0, 1.0
    late_P = np.clip(1.6 * base_P - 0.15, 0.0, 1.0)
    late_P[:5] = 0.0, 0.02, 0.0, 0.5, 1.0
    return {0: base_P, 20: 0.5 * (base_P + late_P), 40: late_P}


def write_stopped(
    path: Path, *, seed: int = 0, n: int = CAP, n_base: int = CAP_OF_BASE, stopped: bool = True, name: str = "run"
) -> Path:
    """Write an audit with its findings and verdict. Without ``stopped``, every problem has all samples to the cap.

    The first samples of a problem are the same for any ``n`` and with any rule. All series share the base's samples.
    """
    with Store.open(path) as store:
        key = _begin(store, name, n=n, n_base=n_base, stopped=stopped)
        for step, rate_P in success_rates().items():
            _add_samples(store, key, step, rate_P, np.random.default_rng([seed if step else 0, step]), stopped=stopped)
        store.plan_rounds(key)
        measure(store, key, {}, SilentProgress())
        conclude(store, key, {}, {}, SilentProgress())
        store.end_audit(key, {"command": "audit"})
    return path


def _begin(store: Store, name: str, *, n: int, n_base: int, stopped: bool) -> AuditKey:
    ks = tuple(2**i for i in range(n_base.bit_length()) if 2**i <= n)
    key = replace(audit_key(name, SETTINGS, n=n, n_base=n_base), ks=ks)
    if stopped:
        key = replace(key, first_round=FIRST, enough=ENOUGH)
    checkpoints = [
        Checkpoint(
            step=step, label=f"checkpoint-{step}", path=Path("/x"), kind="full",
            weights_hash=f"{name}-{step}" if step else "base",
        )
        for step in STEPS
    ]  # fmt: skip
    store.add_series(Series(name=name, path=Path("/x"), layout="hf", checkpoints=tuple(checkpoints)))
    store.add_problems(PROBLEMS)
    ids = [problem.problem_id for problem in PROBLEMS]
    store.begin_audit(key, settings=SETTINGS, panel_settings=SETTINGS, problem_ids=ids)
    return key


def _add_samples(
    store: Store, key: AuditKey, step: int, rate_P: np.ndarray, rng: np.random.Generator, *, stopped: bool
) -> None:
    cap = key.n if step else key.n_base
    correct_NP = rng.random((CAP_OF_BASE, N_PROBLEMS)) < rate_P
    other_NP, kind_NP = rng.integers(3, size=correct_NP.shape), rng.random(correct_NP.shape)
    rule = StoppingRule.doubling(first=FIRST, cap=cap, enough=ENOUGH)
    samples, grades = [], {}
    for place, problem in enumerate(PROBLEMS):
        n = 0
        while stopped and (more := rule.next_n(n, int(correct_NP[:n, place].sum()))) is not None:
            n = more
        for index in range(n if stopped else cap):
            correct, kind = bool(correct_NP[index, place]), float(kind_NP[index, place])
            answer = problem.gold if correct else str(100 + other_NP[index, place])
            text = f"{'```' if kind < 0.3 else ''}It is {answer}, way {other_NP[index, place]}"
            is_cut = not correct and kind > 0.9
            samples.append(
                Sample(
                    problem_id=problem.problem_id, sample_index=index, greedy=False,
                    text=f"{text} …" if is_cut else text, token_ids=tuple(range(3 + other_NP[index, place])),
                    finish_reason="length" if is_cut else "stop", logp_sum_raw=-2.0,
                )
            )  # fmt: skip
            state = "parse_fail" if is_cut else "ok"
            mode = f"way {other_NP[index, place]}" if correct else None
            grade = Grade(answer="NA" if is_cut else answer, mode=mode, reward=float(correct), state=state)
            grades[problem.problem_id, samples[-1].text] = grade
    checkpoint_id = f"{key.series}-{step}" if step else "base"
    store.add_samples(SETTINGS.settings_id, checkpoint_id, samples)
    rows = ((problem_id, response_id(text), "exact", grade) for (problem_id, text), grade in grades.items())
    store.add_grades(rows)
