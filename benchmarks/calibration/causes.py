"""Test ``change_budget`` on simulated series with planted causes.

``python -m benchmarks.calibration.causes`` samples the series of ``causes_worlds`` with causes planted alone and in
pairs, and series in which both sides have one distribution. It checks whether the measure names the leading cause and
whether the parts are right. Then it writes dumps with the same causes, and imports, grades, regrades and measures them
(``causes_dumps``).

The tables go to ``results/causes.json`` and ``.md``. Seeded; some minutes on one core. ``--only fresh`` samples only
the series of the last seed and keeps the other rows. ``--log FILE`` stores finished rows, and a stopped run continues
from it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.calibration.causes_dumps import dump_rows
from benchmarks.calibration.causes_worlds import (
    CAUSES,
    DIFFICULTIES,
    base_laws,
    drawn_evidence,
    ordered_parts,
    plant,
    true_parts,
)
from benchmarks.speed.results import circumstances
from oversharp.diagnostics.measures.coverage.budget.change_budget import PARTS, change_budget
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.verdict.results import Estimate
from oversharp.diagnostics.verdict.words.made_of import is_nearly_known, is_sure

RESULTS = Path(__file__).parents[1] / "results"
#: (number of problems, samples per problem)
SIZES = ((100, 128), (300, 64), (300, 256), (500, 128))
ALONE, PAIRS, TWINS = 5, 1, 25
#: Smallest true change that is tested, as a probability.
LEAST = 0.03
WITHIN = 0.10
#: Seed that was not used before the figures of ``fresh`` were written.
FRESH = 44
#: Note on the rows of earlier seeds.
EARLIER = (
    "Tuned on: as they were found before intervals held for all k at once, ways were told at k = 1 alone, and a part "
    "was called sure a quarter beyond its interval. Fresh then: before a problem of which no sample was read at one "
    "side was lent what the other side's samples are"
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One series, at the k with the larger true change.

    Attributes:
        true, found: Parts of the planted causes.
        named: Whether the largest part is the cause with the largest true part. None without a planted cause.
        off: Largest error of a planted part, relative to the summed size of the true parts.
        off_in_order: The same against parts in one order: faults of grading, the base at a lower temperature, the rest.
        whole_off: The same error of the whole change.
        held: Whether the intervals of all planted parts contain the truth.
        claimed: Parts that were not planted and are reported as significantly different from 0, at any k.
        numbers: How many planted parts are known to a tenth of the whole change.
        right: How many of these are within 10 points of the truth.
        told: Whether all ``numbers`` are right, and the intervals of the other known parts contain the truth.
        path: ``counts``, ``before`` (an earlier fresh seed), ``fresh`` (a seed that was not used before) or ``dump``.
    """

    causes: tuple[str, ...]
    difficulty: str
    n_problems: int
    n: int
    k: int
    true: dict[str, float]
    found: dict[str, float | None]
    leading: str
    named: bool | None
    off: float | None
    off_in_order: float | None
    held: bool | None
    claimed: tuple[str, ...]
    numbers: int | None = None
    right: int | None = None
    told: bool | None = None
    whole_off: float | None = None
    path: str = "counts"


def simulated(seed: int = 20, path: str = "counts", after: int = 0) -> Iterator[Row]:
    """Simulate every size, difficulty and set of causes, except the first ``after`` series."""
    number_of_all = 0
    pairs = tuple(combinations(CAUSES, 2))
    cases = [((cause,), ALONE) for cause in CAUSES] + [(pair, PAIRS) for pair in pairs] + [((), TWINS)]
    for place, (n_problems, n) in enumerate(SIZES):
        for number, (causes, times) in enumerate(cases):
            for one in range(times):
                number_of_all += 1
                if number_of_all <= after:
                    continue
                difficulty = list(DIFFICULTIES)[(one + number + place) % len(DIFFICULTIES)]
                rng = np.random.default_rng([seed, place, number, one])
                law_PR = base_laws(DIFFICULTIES[difficulty](n_problems, rng), rng)
                planted = plant(law_PR, rng)
                findings = change_budget(drawn_evidence(law_PR, causes, planted, n, rng))
                ks = (1, n // 2)
                true = {k: true_parts(law_PR, causes, planted, k) for k in ks}
                k = max(ks, key=lambda k, true=true: abs(sum(true[k].values())))
                row = row_of(causes, findings, true[k], k, ordered_parts(law_PR, causes, planted, k))
                yield replace(row, difficulty=difficulty, n_problems=n_problems, n=n, path=path)


def row_of(
    causes: Sequence[str],
    findings: Sequence[Finding],
    true: dict[str, float],
    k: int,
    ordered: dict[str, float] | None = None,
) -> Row:
    """Compare the budget of the planted causes at ``k`` with the truth, and list other parts at any k."""
    at_k = {one.scope: one for one in findings if one.k == k}
    value = {part: at_k[part].value for part in PARTS if part in at_k}
    leading = max(PARTS, key=lambda part: abs(value.get(part) or 0.0))
    size = sum(map(abs, true.values()))
    errors = [abs((value.get(cause) or 0.0) - true[cause]) for cause in causes]
    in_order = [abs((value.get(cause) or 0.0) - part) for cause, part in (ordered or {}).items()]
    sure = {one.scope for one in findings if is_sure(_estimate(one))}
    known = [cause for cause in causes if is_nearly_known(_estimate(at_k[cause]), _estimate(at_k["all"]))]
    right = [cause for cause in known if abs((value[cause] or 0.0) - true[cause]) <= WITHIN * size]
    ranges = all(
        _holds(at_k[cause], true[cause]) for cause in causes if value[cause] is not None and cause not in known
    )
    return Row(
        causes=tuple(causes),
        difficulty="",
        n_problems=0,
        n=0,
        k=k,
        true=true,
        found={cause: value.get(cause) for cause in causes},
        leading=leading,
        named=leading == max(true, key=lambda cause: abs(true[cause])) if causes else None,
        off=max(errors) / size if causes and size else None,
        off_in_order=max(in_order) / size if in_order and size else None,
        held=all(_holds(at_k[cause], true[cause]) for cause in causes) if causes else None,
        claimed=tuple(sorted(sure - {*causes, "all"} if causes else sure)),
        numbers=len(known),
        right=len(right),
        told=len(right) == len(known) and ranges if causes else None,
        whole_off=abs((at_k["all"].value or 0.0) - sum(true.values())) / size if causes and size else None,
    )


def _estimate(found: Finding) -> Estimate:
    return Estimate(value=found.value, low=found.low, high=found.high)


def _holds(found: Finding, true: float) -> bool:
    return found.low is not None and found.high is not None and found.low <= true <= found.high


# ---------------------------------------------------------------- tables


def page(rows: Sequence[Row], made: dict) -> str:
    planted, before, fresh = (
        [one for one in rows if one.path == path and one.causes and _size(one) >= LEAST]
        for path in ("counts", "before", "fresh")
    )
    small = sum(1 for one in rows if one.path == "fresh" and one.causes) - len(fresh)
    lines = [
        "# What a change of pass@k is made of: planted causes",
        "",
        f"Made by `python -m benchmarks.calibration.causes`; machine and versions are in `causes.json`. "
        f"{len(fresh)} series with causes planted alone and in pairs that truly change pass@k by "
        f"{100 * LEAST:.0f} points or more ({small} more "
        "change it less, and are left out), at the k, 1 or n / 2, with the larger change, drawn with a seed that "
        "nobody had looked at. *Named*: the largest part is the cause that truly made the largest one. *Within 10*: "
        "every planted part is within 10 points of its true share, of the summed size of the true parts; one that is "
        "not known is not. *Whole*: the whole change as it was measured is within 10 points of the true one, which "
        "is all that any estimate can go by where one cause was planted. *In order*: as *within 10*, had true been "
        "what each is if what is no ability came first, then the colder base, then problems and ways. *Held*: the "
        "intervals of all planted parts hold what is true. *Told right*: what is said of the planted parts is: a "
        "number lies within 10 points, an interval, where one is told, holds what is true, and what is not known is "
        "called so. *Others*: a part that was not planted is told as surely not 0, at any k. What is true of a pair "
        "are Shapley values over the laws with and without each. All are per cent of the series.",
        "",
        *_table("fresh", [*_alone_and_in_pairs(fresh), *_at_k(fresh), ("all", fresh)]),
        "",
        *_table("alone", _by([one for one in fresh if len(one.causes) == 1], lambda row: row.causes[0])),
        "",
        *_table(
            "in a pair with others",
            [(cause, [one for one in fresh if len(one.causes) == 2 and cause in one.causes]) for cause in CAUSES],
        ),
        "",
        *_table("problems × samples", _by(fresh, lambda row: f"{row.n_problems} × {row.n}")),
        "",
        "Clean twins, both sides of one law, in which any part is told as surely not 0, at k = 1 or at n / 2:",
        "",
        "| problems × samples | series | any claim, % |",
        "|---|---:|---:|",
        *_twins([one for one in rows if one.path == "fresh" and not one.causes]),
        "",
        "## Seeds that had been looked at",
        "",
        f"{EARLIER}:",
        "",
        *_table("tuned on", [*_alone_and_in_pairs(planted), ("all", planted)]),
        "",
        *_table("fresh then", [*_alone_and_in_pairs(before), ("all", before)]),
        "",
        "## Through the real path",
        "",
        "Dumps with the causes written into their responses, imported, graded by `math`, measured; the grader's "
        "corrupted rewards come with the dump, and `oversharp regrade --verifier math` grades again. The colder base "
        "is planted as the answers of two draws that agree, at k = n / 16."
        + (" As they were found before, too." if any(one.path == "dump" and one.told is None for one in rows) else ""),
        "",
        "| planted | problems × samples | k | true, points | found, points | leading part |",
        "|---|---|---:|---|---|---|",
        *(_real(one) for one in rows if one.path == "dump"),
    ]
    return "\n".join(lines) + "\n"


def _twins(rows: Sequence[Row]) -> list[str]:
    return [
        f"| {name} | {len(own)} | {_percent(sum(bool(one.claimed) for one in own), len(own))} |"
        for name, own in [*_by(rows, lambda row: f"{row.n_problems} × {row.n}"), ("all", rows)]
    ]


def _alone_and_in_pairs(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    return _by(rows, lambda row: len(row.causes), {1: "alone", 2: "in pairs"})


def _at_k(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    return _by(rows, lambda row: row.k > 1, {False: "at pass@1", True: "at n / 2"})


def _size(row: Row) -> float:
    return abs(sum(row.true.values()))


def _by(rows: Sequence[Row], key, names: dict | None = None) -> list[tuple[str, list[Row]]]:
    found = sorted({key(row) for row in rows}, key=str)
    return [(str((names or {}).get(one, one)), [row for row in rows if key(row) == one]) for one in found]


def _table(title: str, groups: Sequence[tuple[str, Sequence[Row]]]) -> list[str]:
    lines = [
        f"| {title} | series | named | within 10 | whole | in order | held | told right | others |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, rows in groups:
        told, measured = ([row for row in rows if getattr(row, name) is not None] for name in ("told", "whole_off"))
        counts = (
            (sum(bool(row.named) for row in rows), len(rows)),
            (sum(row.off is not None and row.off <= WITHIN for row in rows), len(rows)),
            (sum((row.whole_off or 0.0) <= WITHIN for row in measured), len(measured)),
            (sum(row.off_in_order is not None and row.off_in_order <= WITHIN for row in rows), len(rows)),
            (sum(bool(row.held) for row in rows), len(rows)),
            (sum(bool(row.told) for row in told), len(told)),
            (sum(bool(row.claimed) for row in rows), len(rows)),
        )
        lines.append(f"| {name} | {len(rows)} | {' | '.join(_percent(*one) for one in counts)} |")
    return lines


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.1f}" if of else "–"


def _real(row: Row) -> str:
    true = ", ".join(f"{cause} {100 * value:+.1f}" for cause, value in row.true.items()) or "nothing"
    found = ", ".join(
        f"{cause} " + ("unknown" if value is None else f"{100 * value:+.1f}") for cause, value in row.found.items()
    )
    claims = f"; surely not 0: {', '.join(row.claimed)}" if row.claimed else ""
    return (
        f"| {' + '.join(row.causes) or 'clean twin'} | {row.n_problems} × {row.n} | {row.k} | {true} | {found or '–'} "
        f"| {row.leading if row.causes else 'none' if not row.claimed else ''}{claims} |"
    ).replace("-", "−")


def _kept_rows(log: Path | None, made_of: Iterator[Row]) -> Iterator[Row]:
    """Yield the rows of the log, then compute and append the missing ones."""
    done = [] if log is None or not log.exists() else log.read_text().splitlines()
    yield from (_row(json.loads(line)) for line in done)
    for row in made_of:
        print(row, file=sys.stderr, flush=True)
        if log is not None:
            with log.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")
        yield row


def _row(kept: dict) -> Row:
    return Row(**{**kept, "causes": tuple(kept["causes"]), "claimed": tuple(kept["claimed"])})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["fresh"])
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    start = time.process_time()
    n_done = len(given.log.read_text().splitlines()) if given.log and given.log.exists() else 0
    fresh = list(_kept_rows(given.log, simulated(FRESH, "fresh", after=n_done)))
    if given.only:
        kept = [_row(one) for one in json.loads((RESULTS / "causes.json").read_text())["rows"]]
        kept = [replace(one, path="before") if one.path == "fresh" else one for one in kept if one.path != "before"]
        rows = kept + fresh
    else:
        rows = [*simulated(), *simulated(43, "before"), *fresh, *dump_rows(row_of)]
    made = {"cpu_s": time.process_time() - start, **circumstances(("oversharp", "numpy", "scipy", "duckdb"))}
    (RESULTS / "causes.json").write_text(
        json.dumps({**made, "rows": [{**asdict(row), "causes": list(row.causes)} for row in rows]}, indent=1) + "\n"
    )
    (RESULTS / "causes.md").write_text(page(rows, made))


if __name__ == "__main__":
    main()
