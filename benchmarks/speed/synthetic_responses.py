"""Responses to simulated problems, and their probabilities while a series trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from benchmarks.calibration.planted import N_MODES, Kind, PlantedProblems, draw_problems, mass_at
from oversharp.diagnostics.records.types import NO_ANSWER, Problem, response_id

#: Name of a series → its change by training.
FATES: Mapping[str, Kind] = MappingProxyType(
    {"losing": "over_plain", "collapsing": "collapse_severe", "holding": "moderate", "idle": "no_change"}
)
#: Wrong responses of a problem: some sums, one without an answer, one that is truncated.
N_WRONG = 6
#: Smallest probability of a response, so that every log-probability is finite.
LEAST_MASS = 1e-9


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Size of a store.

    Attributes:
        n_checkpoints: Includes the base, which has twice ``n`` samples.
        panel: Responses per problem that every checkpoint scores, token by token. 0 for none.
        lists_modes: Whether problems list their modes. Otherwise there are no exact measures, as with most tasks.
    """

    n_problems: int
    n_checkpoints: int
    n: int
    series: tuple[str, ...] = ("losing",)
    n_tasks: int = 1
    panel: int = 4
    lists_modes: bool = True
    seed: int = 0

    @property
    def verifier(self) -> str:
        """Name of the verifier."""
        return "modes" if self.lists_modes else "exact"

    @property
    def ks(self) -> tuple[int, ...]:
        """Powers of two up to n."""
        return tuple(1 << power for power in range(self.n.bit_length()))


@dataclass(frozen=True, kw_only=True)
class Responses:
    """Possible responses, one row per problem and response, correct ones first."""

    problems: tuple[Problem, ...]
    rows: pd.DataFrame  # position, response, problem_id, response_id, text, answer, mode, correct, state, …

    @classmethod
    def made(cls, plan: Plan) -> Responses:
        """Create sums to a target that no other problem has."""
        problems, rows = [], []
        for position in range(plan.n_problems):
            target = 101 + position
            texts = [f"{a} + {target - a} = {target}" for a in range(1, N_MODES + 1)]
            problem = Problem(
                task="sums" if plan.n_tasks == 1 else f"sums_{position % plan.n_tasks + 1}",
                prompt=f"Write {target} as the sum of two whole numbers.",
                gold=str(target),
                verifier=plan.verifier,
                modes=tuple(texts) if plan.lists_modes else (),
                source_id=f"sum-{target}",
            )
            problems.append(problem)
            texts += [f"{a} + {target} = {target}" for a in range(1, N_WRONG - 1)]
            texts += ["", f"The two numbers are {target // 2} and then"]
            for response, text in enumerate(texts):
                rows.append(
                    {
                        "position": position,
                        "response": response,
                        "problem_id": problem.problem_id,
                        "response_id": response_id(text),
                        "text": text,
                        "answer": text or NO_ANSWER,
                        "mode": text or None,
                        "correct": response < N_MODES,
                        "state": "ok" if text else "parse_fail",
                        "reason": "" if text else "empty response",
                        "n_tokens": len(text.split()) + 1,
                        "finish_reason": "length" if text.endswith("then") else "stop",
                    }
                )
        return cls(problems=tuple(problems), rows=pd.DataFrame(rows))


@dataclass(frozen=True, kw_only=True)
class ResponseLaw:
    """Probabilities of the responses.

    The correct ones follow ``planted``. The wrong ones divide the rest, less and less evenly.
    """

    problems: PlantedProblems
    wrong_PR: Float[np.ndarray, "problem response"]

    @classmethod
    def planted(cls, n_problems: int, rng: np.random.Generator) -> ResponseLaw:
        """Draw the probabilities of random problems."""
        problems = draw_problems(n_problems, rng)
        # no answer, and truncated: rarely
        return cls(problems=problems, wrong_PR=rng.dirichlet([0.5] * (N_WRONG - 2) + [0.02, 0.02], n_problems))

    def at(self, kind: Kind, progress: float) -> Float[np.ndarray, "problem response"]:
        """Return the probability of every response of every problem at ``progress`` 0 … 1. None is 0."""
        mass_PJ = np.maximum(mass_at(kind, self.problems, progress), LEAST_MASS)
        wrong_PR = np.maximum(self.wrong_PR, LEAST_MASS) ** (1 + progress)
        wrong_PR *= (1 - mass_PJ.sum(axis=1, keepdims=True)) / wrong_PR.sum(axis=1, keepdims=True)
        law_PR = np.concatenate([mass_PJ, np.maximum(wrong_PR, LEAST_MASS)], axis=1)
        return law_PR / law_PR.sum(axis=1, keepdims=True)


def draw(
    law_PR: Float[np.ndarray, "problem response"], n: int, rng: np.random.Generator
) -> Int[np.ndarray, "problem draw"]:
    """Draw ``n`` responses to every problem, by their indices."""
    u_PD = rng.random((len(law_PR), n))
    drawn_PD = np.zeros((len(law_PR), n), dtype=np.int8)
    for edge_P in np.cumsum(law_PR, axis=1)[:, :-1].T:
        drawn_PD += u_PD > edge_P[:, None]
    return drawn_PD
