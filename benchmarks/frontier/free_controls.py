"""Compare the two frontiers that need no samples, power and answers, with their exact values.

All responses of the base above a probability are listed by following every prefix. So the power distribution, and the
answer on which m samples agree, are known exactly. Audits are simulated from that distribution, and ``frontier_gain``,
``frontier_loss`` and ``sharpening_share`` are computed: how often the 95 % intervals contain the exact value, and the
mean error of the points.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.frontier.exact_frontier import PARTS, Coverage, ExactFrontier, Rates, pass_at
from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.measures.coverage.sharpening import controls
from oversharp.diagnostics.measures.coverage.sharpening.controls import compare_controls, load_controls
from oversharp.diagnostics.records.types import NO_ANSWER, Problem
from oversharp.diagnostics.verifiers import get_verifier

SEED = 29
#: Smallest probability of a prefix that is followed.
LEAST = 3e-5
#: Finer than the exponents of an audit. Numbers of agreeing samples are integers.
EXPONENTS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0)
AGREEING = (1, 2, 3, 4, 5, 6, 7, 8)
N_BASE, N = 512, 256
#: Samples of smaller audits, in which base and checkpoints have equally many.
SMALLER = (128, 64)
BASE = "base"


@dataclass(frozen=True, kw_only=True)
class Law:
    """Responses of the base (rows): problem, log-probability, answer, and whether it is right.

    The remaining probability of a problem is spread over wrong responses that are rarer than ``LEAST``.
    """

    problem_R: np.ndarray
    logp_R: np.ndarray
    answer_R: np.ndarray
    correct_R: np.ndarray
    n_problems: int

    @cached_property
    def rows_of(self) -> list[np.ndarray]:
        """Rows of each problem."""
        return [np.flatnonzero(self.problem_R == problem) for problem in range(self.n_problems)]

    @cached_property
    def mass(self) -> float:
        """Mean listed probability."""
        return float(np.bincount(self.problem_R, np.exp(self.logp_R), self.n_problems).mean())

    def power(self, exponent: float) -> Rates:
        """Return the success rates of the power distribution.

        At exponent 1 that is the base itself, with the unlisted responses.
        """
        weight_R = np.exp(exponent * self.logp_R)
        right_P = np.bincount(self.problem_R, weight_R * self.correct_R, self.n_problems)
        if exponent == 1.0:
            return right_P
        return right_P / np.bincount(self.problem_R, weight_R, self.n_problems)

    def agreeing(self, draws: int) -> Rates:
        """Return the success rates of the answer on which ``draws`` samples agree."""
        if draws == 1:
            return self.power(1.0)
        named = pd.DataFrame(
            {"problem": self.problem_R, "answer": self.answer_R, "p": np.exp(self.logp_R), "right": self.correct_R}
        )[self.answer_R != NO_ANSWER]
        by_answer = named.groupby(["problem", "answer"], as_index=False).agg(p=("p", "sum"), right=("right", "max"))
        weight_A = by_answer["p"].to_numpy() ** draws
        right_P = np.bincount(by_answer["problem"], weight_A * by_answer["right"], self.n_problems)
        return right_P / np.bincount(by_answer["problem"], weight_A, self.n_problems)


def law_of(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], max_tokens: int
) -> Law:
    """List every response that is not too rare, with its grade.

    All prompts have the same length.
    """
    prompts = torch.tensor([tokenizer(one.prompt)["input_ids"] for one in problems])
    problem_B, ids_BT, logp_B = torch.arange(len(problems)), prompts, torch.zeros(len(problems), dtype=torch.float64)
    problem_R: list[int] = []
    texts: list[str] = []
    logp_R: list[float] = []
    for length in range(1, max_tokens + 1):
        next_BV = logp_B[:, None] + _next_logp(model, ids_BT)
        row_N, token_N = torch.nonzero(next_BV > np.log(LEAST), as_tuple=True)
        whole_N = (token_N == tokenizer.eos_token_id) | torch.tensor(length == max_tokens)
        for row, token in zip(row_N[whole_N].tolist(), token_N[whole_N].tolist(), strict=True):
            own = ids_BT[row, prompts.shape[1] :].tolist()
            own += [] if token == tokenizer.eos_token_id else [token]
            problem_R.append(int(problem_B[row]))
            texts.append(tokenizer.decode(own, skip_special_tokens=True))
            logp_R.append(float(next_BV[row, token]))
        row_N, token_N = row_N[~whole_N], token_N[~whole_N]
        problem_B, logp_B = problem_B[row_N], next_BV[row_N, token_N]
        ids_BT = torch.cat([ids_BT[row_N], token_N[:, None]], dim=1)
    verifier = get_verifier(problems[0].verifier)
    grades = verifier.grade([(problems[place], text) for place, text in zip(problem_R, texts, strict=True)])
    return Law(
        problem_R=np.array(problem_R),
        logp_R=np.array(logp_R),
        answer_R=np.array([one.answer for one in grades], dtype=object),
        correct_R=np.array([one.correct for one in grades], dtype=np.float64),
        n_problems=len(problems),
    )


def _next_logp(model: PreTrainedModel, ids_BT: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        parts = [model(part, logits_to_keep=1).logits[:, -1].double().log_softmax(-1) for part in ids_BT.split(2048)]
    return torch.cat(parts)


def exact_frontiers(law: Law, k_of: Mapping[str, int]) -> dict[str, ExactFrontier]:
    """Return the exact frontiers of the controls, each at the k that an audit uses for it."""
    made = {"power": (EXPONENTS, law.power), "answers": (AGREEING, law.agreeing)}
    return {
        name: ExactFrontier.of({1.0 / knob: rates(knob) for knob in knobs}, k_of[name])
        for name, (knobs, rates) in made.items()
        if name in k_of
    }


def audited(
    law: Law,
    late: Mapping[str, Rates],
    chosen_P: np.ndarray,
    rng: np.random.Generator,
    *,
    n: int = N,
    n_base: int = N_BASE,
) -> Evidence:
    """Simulate an audit of these problems: correct samples, and responses and answers of the base."""
    samples, responses, answers = [], [], []
    for place, problem in enumerate(chosen_P):
        name, own = f"p{place:03}", law.rows_of[problem]
        p_R = np.exp(law.logp_R[own])
        law_R = np.append(p_R, max(0.0, 1.0 - p_R.sum()))
        common_R, more_R = (rng.multinomial(size, law_R / law_R.sum())[:-1] for size in (n, n_base - n))
        drawn_R = common_R + more_R
        samples.append((BASE, name, n_base, int(drawn_R @ law.correct_R[own]), n_base))
        samples += [(which, name, n, rng.binomial(n, rate_P[problem]), n) for which, rate_P in late.items()]
        seen = own[drawn_R > 0]
        responses += [(BASE, name, row, bool(law.correct_R[row]), law.logp_R[row], True) for row in seen]
        answers += [
            (BASE, name, law.answer_R[row], bool(law.correct_R[row]), times)
            for row, times in zip(own, common_R, strict=True)
            if times
        ]
        if (unlisted := n - int(common_R.sum())) > 0:
            answers.append((BASE, name, NO_ANSWER, False, unlisted))
    ids = [BASE, *late]
    frames = {
        "sampled_counts": ("checkpoint_id problem_id n n_correct n_planned", samples),
        "base_responses": ("checkpoint_id problem_id response_id correct logp_sum_raw own_law", responses),
        "answer_counts": ("checkpoint_id problem_id answer correct n", answers),
    }
    checkpoints = pd.DataFrame({"checkpoint_id": ids, "checkpoint": ids, "step": range(len(ids))})
    return Evidence(
        checkpoints=checkpoints.assign(is_base=checkpoints["step"] == 0),
        frames={
            view: pd.DataFrame(rows, columns=columns.split()).assign(task="countdown")
            for view, (columns, rows) in frames.items()
        },
        n=n,
        ks=(1,),
    )


def free_controls(
    law: Law, late: Mapping[str, Rates], series: int, *, n: int = N, n_base: int = N_BASE
) -> dict[str, Any]:
    """Return the coverage of the controls for every distribution of a run.

    There are ``audits`` audits of ``n`` samples, with problems drawn again.
    """
    rng = np.random.default_rng([SEED, n])

    def audit(chosen_P: np.ndarray) -> Evidence:
        return audited(law, late, chosen_P, rng, n=n, n_base=n_base)

    k_of = {one.name: one.k for one in load_controls(audit(np.arange(law.n_problems))) if one.points is not None}
    coverage = {
        (name, which): Coverage(frontier.matched(pass_at(rate_P, 1), pass_at(rate_P, frontier.k)))
        for name, frontier in exact_frontiers(law, k_of).items()
        for which, rate_P in late.items()
    }
    known = dict.fromkeys(coverage, 0)
    for _ in range(series):
        for one in compare_controls(audit(rng.integers(0, law.n_problems, law.n_problems))):
            for which, against in one.against.items():
                if (place := (one.control.name, which)) in coverage:
                    coverage[place].count(against)
                    known[place] += against.gain.value is not None
    return {
        "n": n,
        "n_base": n_base,
        "audits": series,
        "k": k_of,
        "rows": [
            {
                "control": name,
                "law": which,
                **{f"exact_{part}": own.exact[part] for part in PARTS},
                **{f"held_{part}": share for part, share in own.shares().items()},
                **{f"given_{part}": own.given[part] for part in PARTS},
                "known": known[name, which] / series,
            }
            for (name, which), own in coverage.items()
        ],
    }


def biases(law: Law, series: int) -> list[dict[str, Any]]:
    """Return the mean error of every point of both controls, over audits of all problems."""
    rng, every_P = np.random.default_rng(SEED), np.arange(law.n_problems)
    some = {"late": law.power(1.0)}  # the base's points do not depend on the run
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    k_of: dict[str, int] = {}
    for _ in range(series):
        for one in load_controls(audited(law, some, every_P, rng)):
            if one.points is not None:
                found.setdefault(one.name, []).append((one.points.x_SP.mean(axis=1), one.points.y_SP.mean(axis=1)))
                k_of[one.name] = one.k
    rows = []
    for name, own in found.items():
        x_S, y_S = (np.mean([one[axis] for one in own], axis=0) for axis in (0, 1))
        for place, (knob, rate_P) in enumerate(_points(law, name)):
            rows.append(
                {
                    "control": name,
                    "knob": knob,
                    "k": k_of[name],
                    "pass_at_1": pass_at(rate_P, 1),
                    "pass_at_k": pass_at(rate_P, k_of[name]),
                    "bias_pass_at_1": float(x_S[place]) - pass_at(rate_P, 1),
                    "bias_pass_at_k": float(y_S[place]) - pass_at(rate_P, k_of[name]),
                }
            )
    return rows


def cost(n_problems: int = 500, n_checkpoints: int = 11, n: int = N, turns: int = 3) -> dict[str, float]:
    """Return CPU seconds of both controls, with all checkpoints, on a simulated audit: the fastest turn.

    Each problem has 40 responses with different answers, from a Dirichlet distribution of concentration .3. One is
    right.
    """
    rng = np.random.default_rng(SEED)
    p_PR = rng.dirichlet(np.full(40, 0.3), size=n_problems)
    law = Law(
        problem_R=np.repeat(np.arange(n_problems), 40),
        logp_R=np.log(np.maximum(p_PR, 1e-300)).ravel(),
        answer_R=np.tile(np.array([f"{place}" for place in range(40)], dtype=object), n_problems),
        correct_R=np.tile(np.arange(40) == 0, n_problems).astype(np.float64),
        n_problems=n_problems,
    )
    late = {f"step {place}": law.agreeing(2) for place in range(1, n_checkpoints)}
    taken = []
    for _ in range(turns):
        evidence = audited(law, late, np.arange(n_problems), rng, n=n, n_base=n)
        start = time.process_time()
        known = [one.control.name for one in compare_controls(evidence) if one.control.points is not None]
        taken.append(time.process_time() - start)
        if known != ["power", "answers"]:
            raise RuntimeError(f"both controls are to be timed, and there are {known}")
    return {"problems": n_problems, "checkpoints": n_checkpoints, "n": n, "cpu_s": round(min(taken), 3)}


def _points(law: Law, name: str) -> list[tuple[float, Rates]]:
    if name == "power":
        return [(exponent, law.power(exponent)) for exponent in controls.EXPONENTS]
    return [(draws, law.agreeing(draws)) for draws in controls.AGREEING]
