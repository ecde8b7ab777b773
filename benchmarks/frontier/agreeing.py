"""Measure the bias of the answers frontier on distributions whose truth is known.

The samples of an audit are drawn repeatedly from every distribution. The estimates of ``agreeing_pass_at_k``, and plain
shares of the counts, are compared with the exact pass@1 and pass@k of the answer on which m samples agree.

    python -m benchmarks.frontier.agreeing  # half a minute; the base of runs/demo, and made-up laws

Results go into ``benchmarks/results/agreeing.json`` and ``agreeing.md``. Exit code 1 if a point that an audit uses is
off by half a point.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.frontier.exact_frontier import load, tokenizer_of
from benchmarks.frontier.free_controls import Law, law_of
from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.measures.coverage.sharpening.controls import (
    AGREEING,
    ATTEMPTS_PER_SAMPLE,
    agreeing_pass_at_k,
    agreeing_shares,
)
from oversharp.diagnostics.records.types import NO_ANSWER
from oversharp.diagnostics.tasks import countdown

SEED = 31
PROBLEMS, AUDITS = 150, 300
SAMPLES = (32, 64, 96, 128, 192, 256)
#: Bias from which on a point must not be reported.
MOST_OFF = 0.005

#: Of one problem: probabilities of the answers, and which are right. The rest to 1 has no answer.
Answers = tuple[np.ndarray, np.ndarray]


def ranked(rng: np.random.Generator) -> Answers:
    """Draw 3 to 39 answers with Zipf probabilities, exponent .5 to 2. One of the first six is right."""
    n_answers = int(rng.integers(3, 40))
    p_A = np.arange(1, n_answers + 1) ** -rng.uniform(0.5, 2.0)
    return p_A / p_A.sum(), np.arange(n_answers) == min(n_answers - 1, int(rng.integers(0, 6)))


def scattered(rng: np.random.Generator) -> Answers:
    """Draw 30 answers from a Dirichlet distribution of concentration .1, .3 or 1. A random one is right."""
    p_A = rng.dirichlet(np.full(30, rng.choice([0.1, 0.3, 1.0])))
    return p_A, np.arange(30) == rng.integers(30)


def hard(rng: np.random.Generator) -> Answers:
    """Draw a right answer of .3 to 50 %, log-uniform, and 20 wrong ones from a Dirichlet distribution."""
    right = 10 ** rng.uniform(-2.5, -0.3)
    return np.append(right, (1.0 - right) * rng.dirichlet(np.full(20, 0.5))), np.arange(21) == 0


def of_base(law: Law) -> list[Answers]:
    """Return every problem of a listed base.

    Rare and unparsed responses have no answer.
    """
    made = []
    for own in law.rows_of:
        named = own[law.answer_R[own] != NO_ANSWER]
        _, which_R = np.unique(law.answer_R[named].astype(str), return_inverse=True)
        p_A = np.bincount(which_R, np.exp(law.logp_R[named]))
        made.append((p_A, np.bincount(which_R, law.correct_R[named]) > 0))
    return made


#: Simulated distributions by name.
KINDS = {"ranked": ranked, "scattered": scattered, "hard": hard}


def agreeing_biases(law: Law) -> list[dict[str, Any]]:
    """Return one row per distribution, number of samples, and number of agreeing samples."""
    laws = {"the demo's base": of_base(law)}
    for place, (name, kind) in enumerate(KINDS.items()):
        rng = np.random.default_rng([SEED, place])
        laws[name] = [kind(rng) for _ in range(PROBLEMS)]
    return [
        _row(name, problems, n, draws)
        for name, problems in laws.items()
        for n in SAMPLES
        for draws in list(AGREEING)[1:]
        if draws <= n // 16  # with more, hardly any problem has so many equal answers
    ]


def _row(name: str, problems: Sequence[Answers], n: int, draws: int) -> dict[str, Any]:
    k = 1 << (int(n * ATTEMPTS_PER_SAMPLE).bit_length() - 1)
    rng = np.random.default_rng([SEED, n, draws])
    said = {way: np.zeros((2, AUDITS)) for way in ("counted", "jackknife")}
    exact_P = np.array([(p_A**draws)[right_A].sum() / (p_A**draws).sum() for p_A, right_A in problems])
    for p_A, right_A in problems:
        law_A = np.append(p_A, max(0.0, 1.0 - p_A.sum()))
        count_A = rng.multinomial(n, law_A / law_A.sum(), size=AUDITS)[:, :-1]
        problem_A = np.repeat(np.arange(AUDITS), len(p_A))
        of = (count_A.ravel(), np.tile(right_A.astype(np.float64), AUDITS), problem_A)
        share_S = agreeing_shares(*of, AUDITS, draws=draws)
        said["counted"] += np.stack([share_S, 1.0 - (1.0 - share_S) ** k])
        said["jackknife"] += np.stack(agreeing_pass_at_k(*of, np.full(AUDITS, n), draws=draws, k=k))
    exact = {"1": float(exact_P.mean()), "k": float((1.0 - (1.0 - exact_P) ** k).mean())}
    return {
        "law": name,
        "n": n,
        "k": k,
        "draws": draws,
        "told": n >= AGREEING[draws],
        **{f"pass_at_{axis}": value for axis, value in exact.items()},
        **{
            way: {
                f"pass_at_{axis}": {
                    "bias": float(mean_S.mean()) - exact[axis],
                    "deviation": float(mean_S.std(ddof=1)),
                }
                for axis, mean_S in zip("1k", sums / len(problems), strict=True)
            }
            for way, sums in said.items()
        },
    }


def off(row: Mapping[str, Any]) -> bool:
    """Return whether a point that an audit uses is off by half a point."""
    return row["told"] and any(abs(one["bias"]) >= MOST_OFF for one in row["jackknife"].values())


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the results as Markdown, with biases and deviations in points."""
    lines = [
        "# Answers of draws that agree: what their points are off by",
        "",
        "pass@1 and pass@k of what m draws of a base agree on, from counts of its answers, against the exact values of "
        f"the law that the samples come from: mean over {AUDITS} audits of all its problems, in points, ± the standard "
        "deviation over these audits. *Counted*: the share as the counts have it, put into 1 − (1 − q)^k; *jackknife*: "
        "what an audit takes. Where *told* is no, an audit has too few samples for so many draws and leaves the point "
        "out.",
        "",
        *(f"- *{name}*: {_said(kind)}" for name, kind in KINDS.items()),
        f"- *the demo's base*: its {len(countdown.problems())} audited problems, every response above 3e-5 listed.",
        "",
        f"Of the points that are told the jackknife is off by at most {_most(rows, 'jackknife')} points, the counts by "
        f"{_most(rows, 'counted')}. {PROBLEMS} problems of each made-up law. Written by "
        "`python -m benchmarks.frontier.agreeing`.",
        "",
        "| law | samples | k | draws that agree | pass@1 | counted | jackknife | pass@k | counted | jackknife | told |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for one in rows:
        cells = []
        for axis in ("1", "k"):
            cells.append(f"{one[f'pass_at_{axis}']:.3f}")
            for way in ("counted", "jackknife"):
                own = one[way][f"pass_at_{axis}"]
                cells.append(f"{100 * own['bias']:+.2f} ± {100 * own['deviation']:.2f}".replace("-", "−"))
        told = "yes" if one["told"] else "no"
        lines.append(f"| {one['law']} | {one['n']} | {one['k']} | {one['draws']} | {' | '.join(cells)} | {told} |")
    return "\n".join(lines) + "\n"


def _said(kind: Any) -> str:
    said = kind.__doc__
    return f"{said[0].lower() if said[0].isalpha() else said[0]}{said[1:]}"


def _most(rows: Sequence[Mapping[str, Any]], way: str) -> str:
    return f"{100 * max(abs(one['bias']) for row in rows if row['told'] for one in row[way].values()):.2f}"


def main() -> int:
    """Return 0 if every point that an audit uses is off by less than half a point, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, default=Path("runs/demo/base/checkpoint-1200"))
    base = parser.parse_args().base
    torch.set_num_threads(1)
    rows = agreeing_biases(law_of(load(base), tokenizer_of(base), countdown.problems(), countdown.RESPONSE_TOKENS))
    (RESULTS / "agreeing.md").write_text(page(rows), encoding="utf-8")
    told = {"audits": AUDITS, "problems_of_a_made_up_law": PROBLEMS, "seed": SEED, "most_off": MOST_OFF}
    held = not any(map(off, rows))
    write("agreeing", {**told, "held": held, **circumstances(("oversharp", "torch", "numpy")), "rows": rows})
    for row in filter(off, rows):
        print(f"{row['law']}, {row['n']} samples, {row['draws']} draws: off by half a point", file=sys.stderr)
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
