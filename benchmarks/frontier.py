"""Better than its base drawn sharper? Exact on the demo's task, and how often the sampled answer holds the exact one.

On Countdown-mini every correct response is known, so pass@1 and pass@k of a base have no sampling noise at any
temperature, nor have those of a checkpoint, drawn hotter or mixed with the base's weights. ``make frontier`` teacher-
forces them straight through transformers, sets every checkpoint against the exact temperature frontier, and then draws
audits with controls from these exact rates, as ``oversharp audit`` would: how often the 95 % interval of
``frontier_gain`` holds the exact gain, and how often a base that was only drawn colder is called better or worse.

    python benchmarks/frontier.py                        # runs/demo/grpo and runs/demo/iac
    python benchmarks/frontier.py --runs A B --series 500

Results go into ``benchmarks/results/frontier.json`` and ``frontier.md``. Exit code 1 where an interval holds the exact
gain in fewer than 93 % of series, or more than 5 % of sharpenings are called better, or worse.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "speed"))

import numpy as np
import torch
from jaxtyping import Float
from results import RESULTS, circumstances
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from diagnostics.models.load import quiet_transformers
from diagnostics.series import find_series
from diagnostics.statistics.frontier import FrontierPoints, against_frontier, frontier_curve
from diagnostics.statistics.pass_at_k import pass_at_k_table
from diagnostics.tasks import countdown

SEED = 23
K = 128
#: Fine enough that what is interpolated between is exact to a tenth of a point.
FINE = (1.0, 0.9, 0.8, 0.7, 0.6, 0.55, 0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.175, 0.15, 0.125, 0.1)
#: What an audit draws by default, and a base at temperatures between these: runs that are sharpening and nothing else.
DRAWN = (1.0, 0.6, 0.3, 0.15)
BETWEEN = (0.8, 0.5, 0.4, 0.25, 0.2)
HOTTER = (1.2, 1.5)
WEIGHTS = (0.25, 0.5, 0.75)
#: An audit of the demo: samples of the base, of a checkpoint and at each temperature, per problem.
N_BASE, N, N_CONTROL = 512, 256, 128
SCORED_AT_ONCE = 1024
LEAST_COVERAGE, MOST_WRONG = 0.93, 0.05

Rates = Float[np.ndarray, " problem"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One law with the exact success rate of every problem."""

    name: str
    rate_P: Rates

    @property
    def x(self) -> float:
        """pass@1."""
        return float(self.rate_P.mean())

    @property
    def y(self) -> float:
        """pass@K."""
        return float((1.0 - (1.0 - self.rate_P) ** K).mean())


class ExactTask:
    """The demo's problems with all of their modes, as tokens."""

    def __init__(self, tokenizer_path: Path) -> None:
        problems = countdown.problems()
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_path)
        prompts = [tokenizer(one.prompt)["input_ids"] for one in problems for _ in one.modes]
        modes = [[*tokenizer(mode)["input_ids"], tokenizer.eos_token_id] for one in problems for mode in one.modes]
        self.problem_M = np.repeat(np.arange(len(problems)), [len(one.modes) for one in problems])
        self.n_problems, self.n_prompt = len(problems), len(prompts[0])  # the same for all of this task
        self.ids_MT = torch.tensor([prompt + mode for prompt, mode in zip(prompts, modes, strict=True)])

    def rates(self, model: PreTrainedModel, temperatures: Sequence[float]) -> list[Rates]:
        """Per temperature the summed probability of every problem's modes."""
        logp_TM: list[list[np.ndarray]] = [[] for _ in temperatures]
        with torch.inference_mode():
            for ids_BT in self.ids_MT.split(SCORED_AT_ONCE):
                logits = model(ids_BT).logits[:, self.n_prompt - 1 : -1].double()
                target = ids_BT[:, self.n_prompt :, None]
                for place, temperature in enumerate(temperatures):
                    logp = torch.log_softmax(logits / temperature, dim=-1).gather(2, target)[..., 0].sum(dim=1)
                    logp_TM[place].append(logp.numpy())
        return [
            np.bincount(self.problem_M, np.exp(np.concatenate(parts)), self.n_problems).clip(0.0, 1.0)
            for parts in logp_TM
        ]


def load(path: Path) -> PreTrainedModel:
    """A checkpoint in float32."""
    with quiet_transformers():
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def mixed(base: PreTrainedModel, late: PreTrainedModel, share: float) -> PreTrainedModel:
    """Weights ``share`` of the way from the first to the second, written into ``base``'s copy."""
    start, end = base.state_dict(), late.state_dict()
    made = type(base)(base.config).eval()
    made.load_state_dict({name: torch.lerp(start[name], end[name], share) for name in start})
    return made


def laws_of(run: Path, frontier: Mapping[float, Rates] | None) -> tuple[Mapping[float, Rates], list[Point]]:
    """The base's rates at the fine temperatures, computed unless given, and every law of the run beside it."""
    series = find_series([run], base=None, name=None)
    task, base = ExactTask(series.base.path), load(series.base.path)
    fine = frontier or dict(zip(FINE, task.rates(base, FINE), strict=True))
    points, name = [], run.name
    for checkpoint in series.checkpoints[1:]:
        late, last = load(checkpoint.path), checkpoint is series.checkpoints[-1]
        temperatures = (1.0, *HOTTER) if last else (1.0,)
        for temperature, rate_P in zip(temperatures, task.rates(late, temperatures), strict=True):
            drawn = "" if temperature == 1.0 else f", T = {temperature:g}"
            points.append(Point(name=f"{name} step {checkpoint.step}{drawn}", rate_P=rate_P))
        for share in WEIGHTS if last else ():
            [rate_P] = task.rates(mixed(base, late, share), [1.0])
            points.append(Point(name=f"{name} base + {share:g} (step {checkpoint.step} − base)", rate_P=rate_P))
    return fine, points


def exact_gain(fine: Mapping[float, Rates], point: Point) -> float | None:
    """pass@1 beyond the exact temperature frontier at equal pass@K; None beyond its ends."""
    curve = [Point(name="", rate_P=fine[temperature]) for temperature in FINE]
    sharp = FrontierPoints(
        sharpness_S=1.0 - np.array(FINE),
        x_SP=np.array([[one.x] for one in curve]),
        y_SP=np.array([[one.y] for one in curve]),
        limit_P=None,
    )
    x_R, y_R = frontier_curve(sharp)
    return point.x - float(np.interp(point.y, y_R[::-1], x_R[::-1])) if y_R[-1] <= point.y <= y_R[0] else None


def simulated(fine: Mapping[float, Rates], points: Sequence[Point], series: int) -> list[dict[str, float]]:
    """Of ``series`` sampled audits: how often each point's interval holds its exact gain, and what is said of it."""
    rng = np.random.default_rng(SEED)
    exact = [exact_gain(fine, point) for point in points]
    table: Callable[[int], np.ndarray] = lambda n: pass_at_k_table(n, [1, K])  # noqa: E731
    tables = {n: table(n) for n in {N_BASE, N, N_CONTROL}}
    held, better, worse = (np.zeros(len(points)) for _ in range(3))
    n_problems = len(fine[1.0])
    for _ in range(series):
        chosen_P = rng.integers(0, n_problems, n_problems)
        drawn = [
            tables[n][rng.binomial(n, fine[temperature][chosen_P])]
            for temperature, n in zip(DRAWN, (N_BASE, *[N_CONTROL] * (len(DRAWN) - 1)), strict=True)
        ]
        late = [tables[N][rng.binomial(N, point.rate_P[chosen_P])] for point in points]
        frontier = FrontierPoints(
            sharpness_S=1.0 - np.array(DRAWN),
            x_SP=np.array([one[:, 0] for one in drawn]),
            y_SP=np.array([one[:, 1] for one in drawn]),
            limit_P=(fine[FINE[-1]][chosen_P] > 0.5).astype(np.float64),
        )
        found = against_frontier(
            frontier,
            np.array([one[:, 0] for one in late]),
            np.array([one[:, 1] for one in late]),
            groups=[[place] for place in range(len(points))],
            rng=rng,
            draws=399,
        )
        for place, (one, truth) in enumerate(zip(found, exact, strict=True)):
            low, high = one.gain.low, one.gain.high
            held[place] += truth is not None and (low is None or low <= truth) and (high is None or truth <= high)
            better[place] += one.above >= 0.975
            worse[place] += one.below >= 0.975
    return [
        {"held": held[i] / series, "better": better[i] / series, "worse": worse[i] / series} for i in range(len(points))
    ]


def rows_of(runs: Sequence[Path], series: int) -> list[dict[str, Any]]:
    """One row per law: where it lies, its exact gain, and what sampled audits say of it."""
    fine: Mapping[float, Rates] | None = None
    points: list[Point] = []
    for run in runs:
        fine, made = laws_of(run, fine)
        points += made
    assert fine is not None
    sharpened = [Point(name=f"base, T = {temperature:g}", rate_P=fine[temperature]) for temperature in FINE]
    between = [one for one, temperature in zip(sharpened, FINE, strict=True) if temperature in BETWEEN]
    rows = [{"law": one.name, "kind": "frontier", "pass_at_1": one.x, f"pass_at_{K}": one.y} for one in sharpened]
    for kind, group in (("sharpening", between), ("run", points)):
        for point, said in zip(group, simulated(fine, group, series), strict=True):
            gain = 0.0 if kind == "sharpening" else exact_gain(fine, point)
            place = {"law": point.name, "kind": kind, "pass_at_1": point.x, f"pass_at_{K}": point.y}
            rows.append({**place, "exact_gain": gain, **said})
    return rows


def broken(row: Mapping[str, Any]) -> bool:
    """Whether an interval covers too seldom, or a sharpening is called something else too often."""
    if row["kind"] == "frontier" or row["exact_gain"] is None:
        return False
    wrong = max(row["better"], row["worse"]) if row["kind"] == "sharpening" else 0.0
    return bool(row["held"] < LEAST_COVERAGE or wrong > MOST_WRONG)


def table(rows: Sequence[Mapping[str, Any]], series: int, runs: Sequence[Path]) -> str:
    """The Markdown file."""
    lines = [
        "# Against the sharpening frontier",
        f"Made by `make frontier` (seed {SEED}) from {', '.join(f'`{run}`' for run in runs)}; machine and versions "
        f"are in `frontier.json`. pass@1 and pass@{K} are exact, over every correct response. *Gain*: pass@1 beyond "
        f"that of the base at the temperature with the same pass@{K}, in points. The last columns are {series} audits "
        f"sampled from the exact rates, with problems drawn again, as `oversharp audit` samples them ({N} a "
        f"checkpoint, {N_BASE} of the base, {N_CONTROL} at each of T = {', '.join(f'{t:g}' for t in DRAWN[1:])}): how "
        "often the 95 % interval holds the exact gain, and what is said.",
        f"| law | pass@1 | pass@{K} | gain | held, % | better, % | worse, % |\n|---|---:|---:|---:|---:|---:|---:|",
    ]
    body = []
    for row in rows:
        cells = [row["law"], f"{row['pass_at_1']:.3f}", f"{row[f'pass_at_{K}']:.3f}"]
        if row["kind"] == "frontier":
            cells += ["", "", "", ""]
        else:
            gain = row["exact_gain"]
            cells += ["beyond" if gain is None else f"{100 * gain:+.1f}".replace("-", "−")]
            cells += ["" if gain is None else f"{100 * row['held']:.0f}"]
            cells += [f"{100 * row[name]:.1f}" for name in ("better", "worse")]
        body.append(f"| {' | '.join(cells)} |")
    return "\n\n".join(lines) + "\n" + "\n".join(body) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every bound held, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", type=Path, default=[Path("runs/demo/grpo"), Path("runs/demo/iac")])
    parser.add_argument("--series", type=int, default=300, help="sampled audits per law")
    parser.add_argument("--out", type=Path, default=RESULTS / "frontier.json")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = rows_of(given.runs, given.series)
    result = {
        "what": "checkpoints against the temperature frontier of their base; see frontier.md",
        "seed": SEED,
        "k": K,
        "series": given.series,
        "bounds_held": not any(map(broken, rows)),
        **circumstances(("oversharp", "torch", "transformers", "scikit-learn")),
        "rows": rows,
    }
    given.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    given.out.with_suffix(".md").write_text(table(rows, given.series, given.runs))
    for row in filter(broken, rows):
        print(
            f"{row['law']}: held {row['held']:.3f}, better {row['better']:.3f}, worse {row['worse']:.3f}",
            file=sys.stderr,
        )
    return 0 if result["bounds_held"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
