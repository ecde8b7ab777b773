"""Pages of the tables of objectives, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.frontier.positions import Summary, position_markdown
from benchmarks.objectives.settings import MATCHED_PASS_AT_1, TITLES, WITH_POSITIONS, WORLD_TITLES, K, task_of
from oversharp.diagnostics.tasks.worlds import WORLDS


def table_markdown(rows: Sequence[dict[str, Any]], seeds: int) -> list[str]:
    """Return the lines of one table."""
    lines = [
        "| | pass@1 | pass@8 | pass@128 | Δ pass@128 | mode entropy, nats | modes that fell > 10× | problems lost "
        "| interference, nats | matched pass@8 | matched pass@128 | matched modes that fell |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        last, matched = row["last_step"], row["matched"]
        cells = [
            _cell(last["pass_at_1"]),
            _cell(last["pass_at_8"]),
            _cell(last["pass_at_128"]),
            _cell(row["change_pass_at_128"]),
            _cell(last["mode_entropy_nats"], 2),
            _cell(last["modes_fallen_10x"], 2),
            _cell(last["problems_lost"]),
            _cell(last["interference_nats"], 2),
        ]
        reached = row["seeds_that_reach_it"]
        keys = ("pass_at_8", "pass_at_128", "modes_fallen_10x")
        cells += [_cell(matched[key]) for key in keys] if matched else ["never reached"] * len(keys)
        if matched and reached < seeds:
            cells[-1] += f" ({reached} of {seeds} seeds)"
        lines.append(f"| {row['setting']['name']} | " + " | ".join(cells) + " |")
    return lines


def coupling_markdown(coupling: Mapping[str, Mapping[str, Summary]]) -> list[str]:
    """Return the table of kernel cosines: one line per checkpoint."""
    kinds = list(next(iter(coupling.values())))
    lines = [
        "Cosine of the gradients of log π of two correct answers, over all parameters (the audit's gradient kernel); "
        "mean over audited problems of one model, ± half of the 95 % t-interval over them:",
        "",
        "| | answers to " + " | answers to ".join(kinds) + " |",
        "|---" * (len(kinds) + 1) + "|",
    ]
    for name, by_kind in coupling.items():
        lines.append(f"| {name} | " + " | ".join(_cell(asdict(by_kind[kind])) for kind in kinds) + " |")
    return lines


def markdown(
    tables: Mapping[str, Sequence[dict[str, Any]]],
    base: Mapping[str, float],
    seeds: Mapping[str, int],
    max_steps: int,
    coupling: Mapping[str, Mapping[str, Summary]],
) -> str:
    """Return all tables of one world as a page. ``coupling`` is by checkpoint and kind of pair."""
    task = task_of(tables)
    lines = [
        f"# Objectives on {WORLD_TITLES[task]}",
        "",
        f"Exact values over the {len(WORLDS[task].problems())} audited problems after {max_steps} steps; mean over "
        "seeds, ± half of the 95 % t-interval over seeds. One base for all: pass@1 "
        f"{base['pass_at_1']:.3f}, pass@8 {base['pass_at_8']:.3f}, pass@128 {base['pass_at_128']:.3f}, mode entropy "
        f"{base['mode_entropy_nats']:.2f} nats. *Matched*: where pass@1 first reaches {MATCHED_PASS_AT_1[task]}. "
        "Written by `python -m benchmarks.objectives.runs`.",
    ]
    for name, rows in tables.items():
        lines += ["", f"## {TITLES[name]}", "", f"{seeds[name]} seeds.", "", *table_markdown(rows, seeds[name])]
        if name in WITH_POSITIONS:
            lines += ["", *better_or_sharper(rows, seeds[name], MATCHED_PASS_AT_1[task])]
        if name == "coupling":
            lines += ["", *coupling_markdown(coupling)]
    return "\n".join(lines) + "\n"


def better_or_sharper(rows: Sequence[dict[str, Any]], seeds: int, level: float) -> list[str]:
    """Return the positions of a table's objectives relative to the frontier."""
    return [
        "### Better, or only sharper?",
        "",
        f"The last step against the exact temperature frontier of the base, {seeds} seeds, in points. *Gain*: pass@1 "
        f"beyond that of the base at the temperature with the same pass@{K}. At one pass@1 the frontier is one number, "
        f"so what lies above it there has the order of the matched pass@{K}. Unknown: beyond the frontier's ends.",
        "",
        *position_markdown(rows, seeds, K, level),
    ]


def _cell(value: Mapping[str, float | None], decimals: int = 3) -> str:
    mean, high = value["mean"], value["high"]
    assert mean is not None
    return f"{mean:.{decimals}f}" + ("" if high is None else f" ± {high - mean:.{decimals}f}")
