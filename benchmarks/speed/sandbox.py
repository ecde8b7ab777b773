"""Measure how many programs a core tests per second, for each sandbox and form of tests.

``python -m benchmarks.speed.sandbox`` prints the numbers and writes ``benchmarks/results/sandbox.json``. A warm jail
forks a process per program. A cold jail is started for each program. CPU seconds are those of this process and of all
processes in the jails. The forms take turns, so that the machine's load affects all of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from benchmarks.speed.process_costs import tree_cost
from benchmarks.speed.results import circumstances, write
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.verifiers.code.fields import read_code_fields
from oversharp.diagnostics.verifiers.code.verifier import CodeVerifier
from oversharp.diagnostics.verifiers.sandbox.backends import UNSANDBOXED, Backend, all_backends
from oversharp.diagnostics.verifiers.sandbox.jail import backend_states

WARM, COLD, TURNS = 400, 60, 3
#: 20 lines.
PROGRAM = """
from collections import Counter

def top(xs, k):
    counts = Counter()
    for x in xs:
        counts[x] += 1
    ordered = []
    for x in sorted(counts):
        for _ in range(counts[x]):
            ordered.append(x)
    best = []
    while ordered and len(best) < k:
        largest = ordered.pop()
        best.append(largest)
    total = 0
    for x in best:
        total += x
    if not best:
        total = None
    return best if total is not None else []
"""
CASES = (([3, 9, 4, 7], 2, [9, 7]), ([5], 1, [5]), ([12, 81, 33, 64, 2], 3, [81, 64, 33]), ([4, 4, 1], 2, [4, 4]))
_ROWS = {
    "calls": {"entry_point": "top", "tests": [{"args": [xs, k], "result": wanted} for xs, k, wanted in CASES]},
    "asserts": {"tests": "\n".join(f"assert top({xs}, {k}) == {wanted}" for xs, k, wanted in CASES)},
    "output": {"tests": [{"input": "2 3 9 4 7\n", "output": "9 7"}]},
}
_MAIN = "k, *xs = map(int, input().split())\nprint(*top(xs, k))\n"


@dataclass(frozen=True, kw_only=True)
class Form:
    """A problem with one form of tests, and a response that passes them."""

    problem: Problem
    response: str


def forms() -> dict[str, Form]:
    """Return each form of tests with the same program: four calls, four asserts, or one input and output."""
    built = {}
    for name, row in _ROWS.items():
        fields = read_code_fields({"prompt": "?", "verifier": "code", **row})
        assert fields is not None
        problem = Problem(task="speed", prompt="?", gold="?", verifier="code", meta={"code": fields["code"]})
        program = PROGRAM + (_MAIN if name == "output" else "")
        built[name] = Form(problem=problem, response=f"```python{program}```")
    return built


def programs_per_core_s(backend: Backend, *, is_warm: bool) -> dict[str, int]:
    """Return programs per CPU second by form."""
    n = WARM if is_warm else COLD
    cpu_s = dict.fromkeys(_ROWS, 0.0)
    for _ in range(TURNS):
        for name, form in forms().items():
            items = [(form.problem, form.response)]
            with CodeVerifier(backend=backend, workers=1, is_warm=is_warm, timeout_s=60.0) as verifier:
                assert verifier.grade(items)[0].correct  # starts the jails
                before_s, _ = tree_cost(os.getpid())
                grades = verifier.grade(items * n)
                after_s, _ = tree_cost(os.getpid())
            assert all(grade.correct for grade in grades)
            cpu_s[name] += after_s - before_s
    return {name: round(TURNS * n / seconds) for name, seconds in cpu_s.items()}


def main() -> None:
    """Measure, write the result file and print it."""
    working = {name for name, fault in backend_states() if not fault} | {UNSANDBOXED}
    measured = {
        backend.name: {
            "warm_jail": programs_per_core_s(backend, is_warm=True),
            "cold_jail": programs_per_core_s(backend, is_warm=False),
        }
        for backend in all_backends()
        if backend.name in working
    }
    result = {
        "benchmark": "sandbox",
        "lines_of_program": len(PROGRAM.strip().splitlines()),
        "programs_warm": TURNS * WARM,
        "programs_cold": TURNS * COLD,
        "programs_per_core_s": measured,
        "goal_warm": 200,
        "goal_cold": 40,
        **circumstances(("oversharp",)),
    }
    write("sandbox", result)


if __name__ == "__main__":
    main()
