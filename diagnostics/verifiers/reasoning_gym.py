"""Verifier "reasoning_gym", which scores a response with the generator of the problem."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import TracebackType

from oversharp.diagnostics.records.errors import ProblemError, VerifierError
from oversharp.diagnostics.records.types import NO_ANSWER, Grade, Problem
from oversharp.diagnostics.verifiers.extraction import collapse_whitespace, tagged_answer
from oversharp.diagnostics.verifiers.killable import KillablePool, Outcome
from oversharp.diagnostics.verifiers.reading.responses import answer_text

WORKER_MODULE = "oversharp.diagnostics.verifiers.reasoning_gym_worker"


class ReasoningGymVerifier:
    """Give a response the score of the problem's generator, in [0, 1]. A score of 1 means correct.

    ``problem.meta`` contains ``generator`` and ``entry`` (packed), so that stored responses can be graded again without
    generating anything. The answer is the text in the last ``<answer>…</answer>``, else the whole response, with
    collapsed whitespace. The mode equals the answer. If the scorer raises an error, the state is ``error``. If it takes
    longer than ``timeout_s`` (wall seconds), its worker process is killed and the state is ``timeout``.
    """

    name = "reasoning_gym"

    def __init__(self, *, timeout_s: float = 5.0, workers: int | None = None) -> None:
        self._pool = KillablePool(module=WORKER_MODULE, timeout_s=timeout_s, workers=workers)

    def __enter__(self) -> ReasoningGymVerifier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes. They start again if the verifier is used again."""
        self._pool.close()

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if the problem lacks its generator's name or entry."""
        if not isinstance(problem.meta.get("generator"), str) or not isinstance(problem.meta.get("entry"), Mapping):
            raise ProblemError(
                'the verifier "reasoning_gym" needs the generator\'s entry in "meta"; '
                "load the problems with --task reasoning_gym:NAME instead of a file"
            )

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order.

        Raises ``VerifierError`` if reasoning-gym is not installed.
        """
        if find_spec("reasoning_gym") is None:
            raise VerifierError("reasoning-gym is not installed; run: pip install reasoning-gym")
        from oversharp.diagnostics.verifiers.reasoning_gym_worker import score

        texts = [answer_text(text, prompt=problem.prompt) for problem, text in items]
        answers = [tagged if (tagged := tagged_answer(text)) is not None else text.strip() for text in texts]
        calls = [
            (problem.meta["generator"], answer, problem.meta["entry"])
            for (problem, _), answer in zip(items, answers, strict=True)
            if answer
        ]
        outcomes = iter(self._pool.map(score, calls))
        return [_grade(answer, next(outcomes)) if answer else _empty() for answer in answers]


def _grade(answer: str, outcome: Outcome[float]) -> Grade:
    key = collapse_whitespace(answer)
    if outcome.value is None or not math.isfinite(outcome.value):
        state = "error" if outcome.state == "ok" else outcome.state
        reason = outcome.reason or f"the scorer returned {outcome.value}"
        return Grade(answer=key, mode=key, reward=0.0, state=state, reason=reason)
    return Grade(answer=key, mode=key, reward=min(1.0, max(0.0, outcome.value)))


def _empty() -> Grade:
    return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="parse_fail", reason="empty response")
