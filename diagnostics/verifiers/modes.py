"""Verifier "modes", for problems that list every accepted response."""

from __future__ import annotations

from collections.abc import Sequence

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import NO_ANSWER, Grade, Problem
from oversharp.diagnostics.verifiers.extraction import collapse_whitespace


class ModesVerifier:
    """Accept a response if and only if it is in ``problem.modes``, up to whitespace.

    The grade's answer and mode are both the matching entry of ``problem.modes``. If none matches, they are the response
    with collapsed whitespace. An empty response is ``parse_fail``.

    >>> problem = Problem(task="t", prompt="6 7 12 = 54 :", gold="54", verifier="modes", modes=("6 * 7 + 12",))
    >>> [grade.correct for grade in ModesVerifier().grade([(problem, " 6 *  7 + 12"), (problem, "54")])]
    [True, False]
    """

    name = "modes"

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if the problem lists no modes."""
        if not problem.modes:
            raise ProblemError('the verifier "modes" needs the field "modes" with the list of all accepted responses')

    def guess_share(self, problem: Problem) -> float:
        """Return 0: every listed response is correct by definition."""
        return 0.0

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order; an empty response is ``parse_fail``."""
        listed: dict[int, dict[str, str]] = {}
        grades = []
        for problem, text in items:
            # keyed by identity, because hashing a problem's content for each of its thousand samples would dominate the
            # run time
            modes = listed.get(id(problem))
            if modes is None:
                modes = listed[id(problem)] = {collapse_whitespace(mode): mode for mode in problem.modes}
            response = collapse_whitespace(text)
            if not response:
                grades.append(
                    Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="parse_fail", reason="empty response")
                )
                continue
            mode = modes.get(response, response)
            grades.append(Grade(answer=mode, mode=mode, reward=float(response in modes)))
        return grades
