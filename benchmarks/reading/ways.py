"""Test the parsing of ways, and the tests for lost ways, on the demo, generated and real solutions.

``python -m benchmarks.reading.ways --demo runs/demo/audit.duckdb --real DIR --trained runs/ways`` (a quarter of an hour
on one core) writes ``benchmarks/results/ways.json``, with ``--only PART`` only that part. DIR contains the files of
``REAL`` under these names. They are not ours, so the judged pairs in ``benchmarks/reading/ways_judged.json`` have only
hashes of their texts. Missing runs in ``runs/ways`` are trained.

- demo: the tasks list every correct response. Are these modes recovered from the texts alone?
- paraphrase: the ways stay, while words, order, names and layout change. Are there false alarms?
- collapse: minority ways disappear while the wording becomes more diverse. Are the losses found?
- agreement: does the test on ways agree with the test on listed modes (``ways_agreement``)?
- real: how many solutions of models are parsed, and does a judge agree with the ways?
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.reading.ways_agreement import agreement, class_of
from benchmarks.reading.ways_generated import APPROACHES, Problem, drawn_problem, render
from benchmarks.speed.results import circumstances, digits, write
from oversharp.diagnostics.engine.ways import read_ways
from oversharp.diagnostics.measures.examples import tiny_ways
from oversharp.diagnostics.measures.modes.ways.losses import minority_ways_p, ways_fallen
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.ways import get_reader
from oversharp.diagnostics.ways.contract import Signature
from oversharp.diagnostics.ways.equations import read_computations
from oversharp.diagnostics.ways.joining import name_ways, similarities

#: Name in DIR → repository, path in it, SHA-256 of the file.
REAL = {
    "gsm.jsonl": (
        "openai/grade-school-math",
        "grade_school_math/data/example_model_solutions.jsonl",
        "4bc62db838f8418365d51c627bd66294cbdca9fb7f01519cb13f0dce8c51580b",
    ),
    "math.jsonl": (
        "LeapLabTHU/limit-of-RLVR",
        "math/examples/math_eval/data/eval_rm_maj_example/math_cot_100.jsonl",
        "5b9128525733336c4b5bf5d3222f72b18655a305258dc09c301b546e9365ba5e",
    ),
    "tora34.jsonl": (
        "microsoft/ToRA",
        "src/outputs/llm-agents/tora-code-34b-v1.0/gsm8k/test_tora_-1_seed0_t0.0_s0_e1319.jsonl",
        "f5bec001fd6d1a9c29df8911939e7864b3a10e89d778d418def335481619271f",
    ),
    "tora70.jsonl": (
        "microsoft/ToRA",
        "src/outputs/llm-agents/tora-70b-v1.0/gsm8k/test_tora_-1_seed0_t0.0_s0_e1319.jsonl",
        "abca7acb32cf9293fff2d4c7c39b14b5294c05827eeec9584e68446a35475ba0",
    ),
}
JUDGED = Path(__file__).parent / "ways_judged.json"
FILE = Path(__file__).parents[1] / "results" / "ways.json"
READER = get_reader()
N_PROBLEMS, N, WORDINGS = 100, 64, 8
LEVEL = 0.05
#: Kept share of the minority ways → seed.
COLLAPSES = {0.2: 2, 0.5: 4, 0.8: 5}


# ---- the demo, without its list of modes


def demo(path: Path) -> dict[str, Any]:
    """Return the adjusted Rand index of ways and listed modes, and of modes up to commutative order."""
    from sklearn.metrics import adjusted_rand_score

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(path, folder))
        with Store.open(copy) as store:
            for row in store.frame("SELECT series, audit_id FROM current_audits ORDER BY series").itertuples():
                read_ways(store, SimpleNamespace(series=row.series, audit_id=row.audit_id), SilentProgress())
            rows = store.frame("""
                SELECT problem_id, mode, written, way, count(*) AS n
                FROM graded_samples
                JOIN response_ways USING (problem_id, response_id)
                WHERE correct AND NOT greedy
                GROUP BY ALL ORDER BY ALL""")
    rows["up_to_order"] = [class_of(mode) for mode in rows["mode"]]
    found: dict[str, list[float]] = {"written": [], "way": [], "way against listed modes": []}
    for _, own in rows.groupby("problem_id"):
        own = own.loc[own.index.repeat(own["n"])]
        for name, truth, level in (
            ("written", "mode", "written"), ("way", "up_to_order", "way"), ("way against listed modes", "mode", "way"),
        ):  # fmt: skip
            found[name].append(adjusted_rand_score(own[truth], own[level]))
    return {
        "problems": len(found["way"]),
        "samples": int(rows["n"].sum()),
        "listed_modes": int(rows.groupby("problem_id")["mode"].nunique().sum()),
        "modes_up_to_order": int(rows.groupby("problem_id")["up_to_order"].nunique().sum()),
        "ways": int(rows.groupby("problem_id")["way"].nunique().sum()),
        "mean_adjusted_rand": {name: digits(float(np.mean(values))) for name, values in found.items()},
    }


# ---- generated solutions


class Series:
    """Problems with their approaches, each worded many times in two styles and parsed once."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.problems = [drawn_problem(rng) for _ in range(N_PROBLEMS)]
        self.named = [self._names(problem) for problem in self.problems]
        #: The base's probability of each approach. Any of them may lead.
        self.mixture_PA = rng.permuted(rng.dirichlet([6.0, 2.5, 1.5], size=N_PROBLEMS), axis=1)

    def _names(self, problem: Problem) -> list[list[str | None]]:
        """Return the way of each wording, by approach and style, ``WORDINGS`` each."""
        texts = [
            render(problem, approach, style, self.rng)
            for approach in range(APPROACHES)
            for style in (0, 1)
            for _ in range(WORDINGS)
        ]
        signatures = READER.read(texts)
        names = name_ways(Counter(signatures), joined_from=READER.joined_from)
        told = [names.get(signature) for signature in signatures]
        return [told[i : i + WORDINGS] for i in range(0, len(told), WORDINGS)]

    def rows(self, checkpoint: str, mixture_PA: np.ndarray, verbose: float) -> Iterator[tuple[Any, ...]]:
        """Draw samples for ``tiny_ways``: approach, style (the second with probability ``verbose``), wording."""
        for place, named in enumerate(self.named):
            approach_N = self.rng.choice(APPROACHES, size=N, p=mixture_PA[place])
            style_N = (self.rng.random(N) < verbose).astype(int)
            wording_N = self.rng.integers(0, WORDINGS, N)
            ways = [named[2 * a + s][w] for a, s, w in zip(approach_N, style_N, wording_N, strict=True)]
            for half in (True, False):
                own = Counter(ways[: N // 2] if half else ways[N // 2 :])
                yield from ((checkpoint, f"q{place:03}", way, half, n) for way, n in own.items())


def generated(n_series: int, late_of: Callable[[np.ndarray], np.ndarray], seed: int) -> dict[str, Any]:
    """Return how often the two tests find a loss, if the base is terse and the checkpoint verbose."""
    found, unknown = {"minority_ways_p": 0, "minority_ways_p, alike": 0, "ways_fallen": 0}, []
    for number in range(n_series):
        series = Series(np.random.default_rng([seed, number]))
        late_PA = late_of(series.mixture_PA)
        rows = [*series.rows("base", series.mixture_PA, 0.1), *series.rows("late", late_PA, 0.9)]
        evidence = tiny_ways(rows, n=N)
        for name, one in zip(found, minority_ways_p(evidence), strict=False):  # both versions of the test
            found[name] += (one.value or 0.0) <= LEVEL
        found["ways_fallen"] += (ways_fallen(evidence)[0].value or 0.0) > 0
        unknown.append(sum(row[4] for row in rows if row[2] is None) / sum(row[4] for row in rows))
    return {
        "series": n_series,
        "problems": N_PROBLEMS,
        "samples": N,
        "found": {name: digits(n / n_series) for name, n in found.items()},
        "unknown_share": digits(float(np.mean(unknown))),
    }


def collapsed(mixture_PA: np.ndarray, kept: float) -> np.ndarray:
    """Move all but ``kept`` of the minority approaches to the leading one."""
    led_PA = mixture_PA == mixture_PA.max(axis=1, keepdims=True)
    kept_PA = np.where(led_PA, 0.0, mixture_PA * kept)
    return kept_PA + led_PA * (1 - kept_PA.sum(axis=1, keepdims=True))


def surface_diversity(seed: int) -> dict[str, int]:
    """Count different word triples in 20 terse and 20 verbose wordings of each solution."""
    rng = np.random.default_rng(seed)
    problems = [drawn_problem(rng) for _ in range(20)]
    return {
        name: len(set(chain.from_iterable(_triples(render(p, 0, style, rng)) for p in problems for _ in range(20))))
        for name, style in (("terse", 0), ("verbose", 1))
    }


def _triples(text: str) -> list[tuple[str, ...]]:
    words = text.split()
    return list(zip(words, words[1:], words[2:], strict=False))


# ---- real solutions


def real(folder: Path) -> dict[str, Any]:
    """Return parse rates, accuracy of parsed values, and agreement with the judged pairs."""
    for name, (_, _, digest) in REAL.items():
        if sha256((folder / name).read_bytes()).hexdigest() != digest:
            sys.exit(f"{folder / name}: another version of the file than was judged; see REAL")
    texts = {name.removesuffix(".jsonl"): list(_texts(folder / name)) for name in REAL}
    return {
        "read": {name: _read(own) for name, own in texts.items()},
        "annotated_results_read": _annotated(text for text, _ in texts["gsm"]),
        "judged": _judged({text for own in texts.values() for text, _ in own}),
    }


def _texts(path: Path) -> Iterator[tuple[str, bool]]:
    """Return responses, and whether each is correct if the file has that."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if path.stem == "gsm":
            yield row["ground_truth"], True
            yield from (
                (row[name]["solution"], row[name]["is_correct"]) for name in row if "_" in name and "b_" in name
            )
        elif path.stem == "math":
            yield from zip(row["code"], row["score"], strict=True)
        else:
            yield row["code"][0], str(row["pred"][0]) == str(row["gt"])


def _read(texts: Sequence[tuple[str, bool]]) -> dict[str, Any]:
    different = list(dict.fromkeys(text for text, _ in texts))
    start = time.process_time()
    signatures = dict(zip(different, READER.read(different), strict=True))
    seconds = time.process_time() - start
    correct = [signatures[text] for text, is_correct in texts if is_correct]
    return {
        "responses": len(texts),
        "correct": len(correct),
        "correct_with_a_way": digits(sum(one.why is None for one in correct) / len(correct)),
        "strategies": dict(Counter(one.strategy for one in correct if one.strategy).most_common()),
        "mean_characters": digits(float(np.mean([len(text) for text in different]))),
        "responses_per_s": digits(len(different) / seconds),
        "per_s_at_1500_characters": digits(sum(map(len, different)) / 1500 / seconds),
    }


def _annotated(texts: Iterator[str]) -> dict[str, Any]:
    """Return the share of grade-school-math's annotated calculator results that are among the parsed values."""
    there, found = 0, 0
    for text in texts:
        values = {c.value for c in read_computations(text)}
        for _, result in re.findall(r"<<([^<>=]*[-+*/][^<>=]*)=([-\d.]+)>>", text):
            there += 1
            exact = f"{float(result):g}"
            found += exact in values or any("/" in v and f"{_quotient(v):g}" == exact for v in values)
    return {"results": there, "read": digits(found / there)}


def _quotient(value: str) -> float:
    above, _, below = value.partition("/")
    try:
        return int(above) / int(below)
    except ValueError:
        return float("nan")


def _judged(texts: set[str]) -> dict[str, Any]:
    by_hash = {sha256(text.encode()).hexdigest()[:16]: text for text in texts}
    found: dict[str, Counter] = {"choose": Counter(), "test": Counter()}
    by_set: dict[str, Counter] = {}
    for row in json.loads(JUDGED.read_text(encoding="utf-8")):
        one, other = READER.read([by_hash[row["a"]], by_hash[row["b"]]])
        said = _said(one, other)
        found[row["use"]][f"judged {row['judged']}, read as {said}"] += 1
        if row["use"] == "test" and said != "unknown" and row["judged"] != "unclear":
            by_set.setdefault(row["set"], Counter())["agree" if said == row["judged"] else "disagree"] += 1
    return {**{use: dict(sorted(own.items())) for use, own in found.items()}, "test_by_set": _plain(by_set)}


def _plain(counters: dict[str, Counter]) -> dict[str, dict[str, int]]:
    return {name: dict(counter) for name, counter in sorted(counters.items())}


def _said(one: Signature, other: Signature) -> str:
    if one.why is not None or other.why is not None:
        return "unknown"
    alike = one.strategy == other.strategy and similarities([one], [other])[0, 0] >= READER.joined_from
    return "same" if alike else "different"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, default=Path("runs/demo/audit.duckdb"))
    parser.add_argument("--real", type=Path)
    parser.add_argument("--trained", type=Path, default=Path("runs/ways"))
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--only", action="append", choices=list(PARTS), help="may be repeated; the others are kept")
    given = parser.parse_args()
    asked = given.only or list(PARTS)
    if "real" in asked and given.real is None:
        parser.error("--real is missing: the folder with the files of REAL")
    made = {name: PARTS[name](given) for name in asked}
    here = {"reader": f"{READER.name} {READER.version}", **circumstances(("numpy", "scikit-learn", "duckdb"))}
    head = {
        "command": "python -m benchmarks.reading.ways --demo runs/demo/audit.duckdb --real DIR --trained runs/ways",
        "joined_from": READER.joined_from,
    }
    if given.only:
        kept = json.loads(FILE.read_text(encoding="utf-8"))
        anew = {**kept.pop("made_anew", {}), **dict.fromkeys(asked, here)}
        write("ways", {**kept, **made, "made_anew": anew})
    else:
        write("ways", {**head, **made, **here})


PARTS: Mapping[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "demo": lambda given: demo(given.demo),
    "real": lambda given: real(given.real),
    "paraphrase": lambda given: generated(given.series, lambda mixture_PA: mixture_PA, seed=1),
    "collapse": lambda given: {
        f"{kept:.0%} of the minority ways kept": generated(
            given.series * 3 // 10, partial(collapsed, kept=kept), seed=seed
        )
        for kept, seed in COLLAPSES.items()
    },
    "different_word_triples": lambda given: surface_diversity(3),
    "agreement": lambda given: agreement(given.trained),
}  # fmt: skip


if __name__ == "__main__":
    main()
