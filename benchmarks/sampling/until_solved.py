"""How many samples a comparison needs if each problem is drawn until it is solved, and what that costs.

``python -m benchmarks.sampling.until_solved [--audits N] [--draws N] [--store FILE …]`` (about four minutes on one
core) writes ``benchmarks/results/early_stopping.json`` and ``early_stopping.md``:

- exact expectations of the estimates, by enumeration (``enumeration.py``);
- the expected number of samples, exact in the success rates (``rates.py``);
- errors and coverage of the change of pass@k, compared with equally many samples of every problem (``errors.py``);
- real samples, shuffled and drawn again (``stored.py``). Without a store this part is left out. ``--only-stored``
  computes this part alone. It keeps all other results, and those of other series.

False alarms and power of the verdict's tests are in ``calibration/until_solved.py``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sampling import errors, stored
from benchmarks.sampling.enumeration import RATES, Unbiased, check_all
from benchmarks.sampling.errors import EQUAL, FULL, N_PROBLEMS, STOPPED, Row, design_title, expected_samples, measure
from benchmarks.sampling.rates import HELD_OUT, PAIRS, Pair
from benchmarks.speed.results import RESULTS, circumstances, digits
from oversharp.diagnostics.statistics.pass_at_k import StoppingRule

SEED, NAME = 47, "early_stopping"
KS, CAPS, COSTED_CAPS = (1, 8, 64, 128), (256, 512), (64, 256, 512, 1024)
#: Pairs whose problems share topics, so that an interval over problems does not apply.
RELATED = ("topics that move alike",)
#: In points. Below, errors are due to very rare events, and their Monte Carlo error is unknown.
LEAST_RMS = 0.05
#: Fewest stored samples of every problem that are drawn again. An audit until solved has only its first round of each.
LEAST_STORED = 64
STORED_TITLE = "## Stored samples, drawn again"
DESIGNS = (FULL, EQUAL, *(design_title(*stop) for stop in STOPPED))


def costs(pairs: Mapping[str, Pair]) -> list[dict[str, Any]]:
    """Return the expected number of samples per problem of every pair, cap and rule."""
    return [
        {
            "pair": name,
            "cap": cap,
            "design": design_title(first, enough),
            "samples": expected_samples(
                pair, StoppingRule.doubling(first=first, cap=cap, enough=enough), seed=[SEED, number]
            ),
        }
        for number, (name, pair) in enumerate(pairs.items())
        for cap in COSTED_CAPS
        for first, enough in STOPPED
    ]


def simulate(groups: Mapping[str, Mapping[str, Pair]], audits: int) -> Iterator[tuple[str, Row]]:
    """Yield group and row of every pair, cap and design. All but the first group have one cap."""
    for index, (group, pairs) in enumerate(groups.items()):
        for number, (name, pair) in enumerate(pairs.items()):
            for cap in CAPS if index == 0 else CAPS[:1]:
                seed = [SEED, index, number]
                for row in measure(name, pair, cap=cap, ks=(*KS, cap), audits=audits, seed=seed):
                    yield group, row


def redraw_all(checkpoints: Sequence[stored.StoredSamples], draws: int) -> list[stored.StoredRow]:
    """Return every series of a store under each stopping rule."""
    rows = []
    long_enough = [one for one in checkpoints if one.n >= LEAST_STORED]
    for number, series in enumerate(stored.by_series(long_enough)):
        n = min(one.n for one in series)
        for first, enough in STOPPED:
            rows.append(
                stored.redraw_series(
                    series,
                    design_title(first, enough),
                    _rule_of(first, enough),
                    ks=sorted({*KS, n // 2, n}),
                    draws=draws,
                    rng=np.random.default_rng([SEED, 99, number]),
                )
            )
    return rows


def _rule_of(first: int, enough: int) -> Callable[[int], StoppingRule]:
    return lambda cap: StoppingRule.doubling(first=first, cap=cap, enough=enough)


# ---- tables


def page(
    unbiased: Sequence[Unbiased],
    cost_rows: Sequence[Mapping[str, Any]],
    rows: Sequence[tuple[str, Row]],
    redrawn: Sequence[stored.StoredRow],
    audits: int,
) -> str:
    """Return all tables as Markdown."""
    parts = [_INTRODUCTION, _unbiased_table(unbiased)]
    if cost_rows:
        parts.append(_cost_table(cost_rows))
    parts.append(_ERRORS.format(audits=audits, n=N_PROBLEMS))
    for group in dict.fromkeys(group for group, _ in rows):
        for cap in CAPS:
            own = [row for of, row in rows if of == group and row.cap == cap]
            if own:
                parts.append(_summary_table(f"{group}, cap {cap}", own))
    parts.append(_detail_table([row for _, row in rows if row.cap == CAPS[0]]))
    if redrawn:
        parts.append(_stored_table(redrawn))
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = (
    "# Samples drawn until solved: bias, cost and errors\n\n"
    f"Made by `python -m benchmarks.sampling.until_solved` (seed {SEED}); machine and versions are in `{NAME}.json`. "
    "[How unbiased early stopping works](../../docs/early_stopping.md) explains the estimator. The design *from 16, "
    "until 4* draws up to 16, 32, 64, … samples of a problem, and stops after the round that leaves it with 4 correct "
    "ones, at the latest at the cap. False alarms and power are in [another table](until_solved.md)."
)
_ERRORS = (
    "## Errors of the change of pass@k\n\n"
    "{audits} simulated audits of {n} problems per pair of rates; each audit has other problems. All numbers are in "
    "points. *RMS*: root mean square error of the change of pass@k of the audit's problems; the median and the largest "
    f"over the pairs. *Bias*: mean error divided by its Monte Carlo error, root mean square over the pairs with an RMS "
    f"of {LEAST_RMS} or more; 1 is expected without bias. *Here*: 95 % intervals for these problems that contain the "
    "change, in per cent; the mean and the lowest pair. No unbiased variance exists for k above half of the cap. "
    "*Population*: the same of the 95 % intervals over problems (`share_interval`) and the change in the population; "
    f"without the pair whose problems share topics. *{EQUAL}*: as many samples of each problem as the rule *from 16, "
    "until 4* draws on average, for each pair of rates. It has no estimate for a k above that. A pair is in a row only "
    "if the design has an estimate. Monte Carlo errors: 2 % of an RMS, .7 per cent of a coverage of one pair. The "
    "lowest coverage of the population is where few problems change. It is as low with equally many samples of each."
)


def _unbiased_table(unbiased: Sequence[Unbiased]) -> str:
    lines = [
        "## Bias, exact",
        "",
        f"Expectations by summing over all end points, at success rates of {', '.join(map(str, RATES))} and all tested "
        "k. The largest difference from the truth. The share of correct samples is biased.",
        "",
        "| rounds | pass@k | covariance, k and k' up to cap / 2 | share of correct samples |",
        "|---|---:|---:|---:|",
        *(f"| {one.rule} | {one.estimate:.0e} | {one.covariance:.0e} | {one.share:.1e} |" for one in unbiased),
    ]
    return "\n".join(lines)


def _cost_table(cost_rows: Sequence[Mapping[str, Any]]) -> str:
    designs = [design_title(*stop) for stop in STOPPED]
    samples = {(row["pair"], row["cap"], row["design"]): row["samples"] for row in cost_rows}
    pairs = list(dict.fromkeys(row["pair"] for row in cost_rows))
    columns = [(cap, design) for cap in COSTED_CAPS for design in designs]
    short = [f"{cap}: {'/'.join(map(str, stop))}" for cap in COSTED_CAPS for stop in STOPPED]
    savings = np.array([[cap / samples[pair, cap, design] for cap, design in columns] for pair in pairs])
    lines = [
        "## Expected number of samples",
        "",
        f"Per problem, mean of base and late checkpoint, exact in the success rates of {errors.N_COSTED:,} problems "
        "(all of them in a real run). The columns are *cap: first round/number of correct samples*.",
        "",
        "| rates | " + " | ".join(short) + " |",
        "|---|" + "---:|" * len(columns),
        *(
            f"| {pair} | " + " | ".join(f"{samples[pair, cap, design]:.0f}" for cap, design in columns) + " |"
            for pair in pairs
        ),
        "| cap divided by it, median | " + " | ".join(f"{one:.1f}" for one in np.median(savings, axis=0)) + " |",
        "| least | " + " | ".join(f"{one:.1f}" for one in savings.min(axis=0)) + " |",
        "| most | " + " | ".join(f"{one:.1f}" for one in savings.max(axis=0)) + " |",
    ]
    return "\n".join(lines)


def _summary_table(title: str, rows: Sequence[Row]) -> str:
    n_pairs = len({row.pair for row in rows})
    lines = [
        f"### {title}",
        "",
        "| k | design | pairs | samples, median | RMS, median (largest) | bias | here, % (lowest) | width "
        "| population, % (lowest) | width |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for k in sorted({found.k for row in rows for found in row.by_k}):
        for design in DESIGNS:
            own = [(row, found) for row in rows if row.design == design and (found := row.at(k)) is not None]
            if own:
                lines.append(f"| {k} | {design} | {len(own)} of {n_pairs} | {_summary_cells(own)} |")
    return "\n".join(lines)


def _summary_cells(own: Sequence[tuple[Row, errors.ChangeAtK]]) -> str:
    rms = [found.rms for _, found in own]
    z = [found.bias / found.bias_error for _, found in own if found.rms >= LEAST_RMS and found.bias_error]
    here = [100 * found.here / row.audits for row, found in own if found.here is not None]
    width_here = [found.width_here for _, found in own if found.width_here is not None]
    of_population = [(row, found) for row, found in own if row.pair not in RELATED]
    population = [100 * found.population / row.audits for row, found in of_population]
    cells = [
        f"{np.median([row.samples for row, _ in own]):.0f}",
        f"{np.median(rms):.2f} ({max(rms):.2f})",
        f"{np.sqrt(np.mean(np.square(z))):.1f}" if z else "–",
        f"{np.mean(here):.1f} ({min(here):.1f})" if here else "–",
        f"{np.median(width_here):.1f}" if width_here else "–",
        f"{np.mean(population):.1f} ({min(population):.1f})",
        f"{np.median([found.width for _, found in of_population]):.1f}",
    ]
    return " | ".join(cells)


def _detail_table(rows: Sequence[Row]) -> str:
    k, cap = KS[-1], CAPS[0]
    lines = [
        f"## Each pair of rates: k = {k}, cap {cap}",
        "",
        "Samples per problem and RMS of the change in points, of these problems. The design of equal cost has too few "
        "samples where a dash is.",
        "",
        "| rates | change | " + " | ".join(DESIGNS) + " |",
        "|---|---:|" + "---:|" * len(DESIGNS),
    ]
    for pair in dict.fromkeys(row.pair for row in rows):
        by_design = {row.design: row for row in rows if row.pair == pair}
        change = next(found.change for row in by_design.values() if (found := row.at(k)) is not None)
        lines.append(f"| {pair} | {change:+.1f} | " + " | ".join(_detail(by_design[of], k) for of in DESIGNS) + " |")
    return "\n".join(lines)


def _detail(row: Row, k: int) -> str:
    found = row.at(k)
    return f"{row.samples:.0f}: " + ("–" if found is None else f"{found.rms:.2f}")


def _stored_table(redrawn: Sequence[stored.StoredRow]) -> str:
    lines = [
        STORED_TITLE,
        "",
        f"The samples of each checkpoint of finished audits, shuffled without replacement and drawn by the rule: "
        f"{redrawn[0].draws} orders, all late checkpoints. The cap is the number of stored samples. Errors are in "
        "points. *RMS, all samples*: from the change by all stored samples; *bias* is the mean difference. *Here, all "
        "samples*: 95 % intervals for these problems that contain that change, in per cent. *RMS, exact*: from the "
        "change of the exact success rates, in brackets that of all stored samples; *here, exact* likewise. Only the "
        "demo has exact rates. Its series are *grpo* and *iac*. The other series are of SmolLM2-135M "
        "([a real model](../../docs/real_models.md)). Where unsolved problems have longer responses, a larger share "
        "of tokens is drawn than of samples.",
        "",
        "| series | problems; checkpoints | tokens per sample |",
        "|---|---:|---:|",
        *(
            f"| {row.series} | {row.problems}; {row.checkpoints} | {row.tokens_per_sample or 0:.1f} |"
            for row in {row.series: row for row in redrawn}.values()
        ),
        "",
        "| series | design | samples, base; late | share of samples | of tokens | k | RMS, all samples | bias "
        "| here, all samples | RMS, exact | here, exact |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in redrawn:
        tokens = "–" if row.share_of_tokens is None else f"{100 * row.share_of_tokens:.1f} %"
        for found in row.by_k:
            here_all = "–" if found.here is None else f"{100 * found.here:.1f}"
            exact = "–" if found.rms_exact is None else f"{found.rms_exact:.2f} ({found.rms_exact_all:.2f})"
            here = "–" if found.here_exact is None else f"{100 * found.here_exact:.1f}"
            lines.append(
                f"| {row.series} | {row.design} | {row.samples_base:.0f}; {row.samples_late:.0f} "
                f"| {100 * row.share_of_samples:.1f} % | {tokens} | {found.k} | {found.rms:.2f} | {found.bias:+.2f} "
                f"| {here_all} | {exact} | {here} |"
            )
    return "\n".join(lines)


# ---- result file


def as_text(result: Mapping[str, Any]) -> str:
    """Return the result as JSON, one row per line, with three significant digits."""
    parts = []
    for name, value in result.items():
        if isinstance(value, list) and value:
            rows = ",\n  ".join(json.dumps(_plain(one), ensure_ascii=False) for one in value)
            parts.append(f" {json.dumps(name)}: [\n  {rows}\n ]")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(_plain(value), ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return digits(value) if isinstance(value, float) else value


def update_stored(checkpoints: Sequence[stored.StoredSamples], draws: int) -> None:
    """Draw the samples of these series again, and replace their rows in both result files."""
    redrawn = redraw_all(checkpoints, draws)
    path, page_path = RESULTS / f"{NAME}.json", RESULTS / f"{NAME}.md"
    result = json.loads(path.read_text(encoding="utf-8"))
    made = {row.series for row in redrawn}
    kept = [stored.row_from(row) for row in result["stored"] if row["series"] not in made]
    rows = sorted([*kept, *redrawn], key=lambda row: row.series)
    path.write_text(as_text({**result, "stored": rows}), encoding="utf-8")
    before, _, _ = page_path.read_text(encoding="utf-8").partition(f"{STORED_TITLE}\n")
    page_path.write_text(before + _stored_table(rows) + "\n", encoding="utf-8")


def main() -> None:
    """Run all parts and write the result files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=1_000, help="simulated audits per pair of rates")
    parser.add_argument("--draws", type=int, default=200, help="orders in which stored samples are drawn again")
    parser.add_argument("--store", type=Path, nargs="+", default=[Path("runs/demo/audit.duckdb")])
    parser.add_argument("--only-stored", action="store_true", help="keep all other results")
    arguments = parser.parse_args()
    start = time.process_time()
    checkpoints = [one for path in arguments.store if path.is_file() for one in stored.load(path)]
    if arguments.only_stored:
        update_stored(checkpoints, arguments.draws)
        return
    groups: dict[str, Mapping[str, Pair]] = {"Difficult shapes": PAIRS, "Held-out distributions": HELD_OUT}
    if real := stored.exact_pairs(checkpoints):
        groups["The demo's exact rates"] = real
    unbiased = check_all()
    cost_rows = costs({name: pair for pairs in groups.values() for name, pair in pairs.items()})
    rows = []
    for group, row in simulate(groups, arguments.audits):
        rows.append((group, row))
        print(group, row.pair, row.cap, row.design, f"{row.samples:.0f}", flush=True)
    redrawn = redraw_all(checkpoints, arguments.draws)
    result = {
        "benchmark": NAME,
        "what": "samples drawn until solved: exact bias, expected samples, errors of the change of pass@k in points",
        "seed": SEED,
        "audits": arguments.audits,
        "cpu_s": time.process_time() - start,
        **circumstances(["numpy", "scipy"]),
        "unbiased": unbiased,
        "samples": cost_rows,
        "errors": [{"group": group, **asdict(row)} for group, row in rows],
        "stored": redrawn,
    }
    (RESULTS / f"{NAME}.json").write_text(as_text(result), encoding="utf-8")
    text = page(unbiased, cost_rows, rows, redrawn, arguments.audits)
    (RESULTS / f"{NAME}.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
