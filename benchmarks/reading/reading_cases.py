"""Grade a file of judged answers and count outcomes by kind: ``python -m benchmarks.reading.reading_cases FILE``.

Each line of FILE is ``{"kind": …, "input": {"gold": …, "response": …, "verifier": …}, "expected": …, "ok": …}``.
``expected`` is "right", "wrong", "unread", "ambiguous", several of them joined by "|", or true or false for right or
not. ``ok`` is whether an earlier version agreed. Lines without a response are skipped. Writes counts, no text, to
``benchmarks/results/reading.json`` and ``.md``. Exit code 1 if a line is not graded as expected.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.verifiers import RULES, Verifiers

_STATES = {"parse_fail": "unread", "ambiguous": "ambiguous"}


def outcomes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the outcome of each response: right, wrong, unread, ambiguous, or "gold refused"."""
    found = []
    with Verifiers() as verifiers:
        for row in rows:
            given = row["input"]
            problem = Problem(task="cases", prompt="?", gold=given["gold"], verifier=given["verifier"])
            try:
                verifiers.check_gold(problem)
            except ProblemError:
                found.append("gold refused")
                continue
            grade = verifiers.grade([(problem, given["response"])])[0]
            found.append("right" if grade.correct else _STATES.get(grade.state, "wrong"))
    return found


def accepted(expected: str | bool) -> set[str]:
    """Return the outcomes that a case allows."""
    if isinstance(expected, bool):
        return {"right"} if expected else {"wrong", "unread", "ambiguous"}
    return set(expected.split("|"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade the cases and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    path = parser.parse_args(arguments).cases
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    rows = [row for row in rows if "response" in row["input"]]
    of, before, now = Counter[str](), Counter[str](), Counter[str]()
    wrong = []
    for row, outcome in zip(rows, outcomes(rows), strict=True):
        of[row["kind"]] += 1
        before[row["kind"]] += bool(row["ok"])
        agrees = outcome in accepted(row["expected"])
        now[row["kind"]] += agrees
        if not agrees:
            wrong.append(f"{row.get('id', '')} {row['input']}: {outcome}, expected {row['expected']}")
    lines = [
        "# Judged answers, by kind",
        "",
        "Made by `python -m benchmarks.reading.reading_cases FILE`; machine, versions and the hash of the file are in "
        "`reading.json`. *Before*: by the rules before announcements, golds and notation had tables; *now*: by the "
        "rules that `reading.json` names.",
        "",
        "| kind | cases | as expected before | now |",
        "|---|---:|---:|---:|",
        *(f"| {kind} | {of[kind]} | {before[kind]} | {now[kind]} |" for kind in sorted(of)),
        f"| all | {of.total()} | {before.total()} | {now.total()} |",
        "",
    ]
    (RESULTS / "reading.md").write_text("\n".join(lines), encoding="utf-8")
    counts = {kind: {"cases": of[kind], "before": before[kind], "now": now[kind]} for kind in sorted(of)}
    rules = {name: RULES[name] for name in ("math", "exact", "choice")}
    file = {"name": path.name, "sha256": sha256(path.read_bytes()).hexdigest()}
    write("reading", {"file": file, "rules": rules, "kinds": counts, **circumstances(("math-verify", "sympy"))})
    print("\n".join(wrong) or "all as expected")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
