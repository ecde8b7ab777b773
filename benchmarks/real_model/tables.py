"""Tables of ``real_model.py``: results of every series and costs of every stage."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.speed.results import digits
from oversharp.diagnostics.records.errors import LEFT_OUT_EXIT_CODE
from oversharp.diagnostics.statistics.intervals import resampled_means

if TYPE_CHECKING:
    from oversharp.diagnostics.app.reader import OpenStore

#: Findings of the last checkpoint: name in the tables → (measure, scope).
FINDINGS = {
    "frontier_gain": ("frontier_gain", "temperature"),
    "token_entropy": ("token_entropy", "all"),
    "response_tokens": ("response_length", "all"),
    "problems_lost": ("problems_lost", "all"),
    "truncation_rate": ("truncation_rate", "all"),
}


#: Kinds of word problems → pattern in the prompt.
KINDS = {
    "has a, finds b": r"finds \d+ more",
    "has a, gives b away": r"gives \d+ away",
    "a boxes of b": r"with \d+ \w+ in each",
    "buys, then loses": r"and then loses",
    "a boxes of b, and c": r"each and keeps",
    "to each of a friends b and c": r"gives each of",
}

#: Forms of a solution → (kind of problems, pattern in the response without its last sentence). They were chosen after
#: reading the first series: a description, no test.
FORMS: Mapping[str, tuple[str | None, str]] = {
    "in words": (None, r"^[^=]*$"),
    "in one line": ("buys, then loses", r"^\d+ \+ \d+ - \d+ = \d"),
    "the rest first": ("a boxes of b, and c", r"^\d+ \+ \d+ ?\* ?\d"),
}
_DRAWS = 4000


def series_row(store: OpenStore, series: str, ks: Sequence[int]) -> dict[str, Any]:
    """Return label, verdict, and values of the base and the last checkpoint, with intervals."""
    verdict = store.verdict(series)
    last = int(store.frame("SELECT max(step) AS step FROM findings WHERE series = $series", series=series)["step"][0])
    row: dict[str, Any] = {
        "series": series,
        "step": last,
        "label": None if verdict is None else verdict.label,
        "sentence": None if verdict is None else verdict.sentence,
    }
    for k in (ks[0], ks[-1]):
        row[f"base_pass_at_{k}"] = finding(store, series, 0, "pass_at_k", "all", k)
        row[f"pass_at_{k}"] = finding(store, series, last, "pass_at_k", "all", k)
        row[f"pass_at_{k}_delta"] = finding(store, series, last, "pass_at_k_delta", "all", k)
    row |= {name: finding(store, series, last, *of) for name, of in FINDINGS.items()}
    row["kinds"] = [kind_row(store, series, last, kind) for kind in KINDS]
    row["forms"] = [form_row(store, series, last, form) for form in FORMS]
    return row


def base_of(store: OpenStore, series: str) -> str:
    """Return the beginning of the hash of the base's weights."""
    found = store.frame(
        "SELECT checkpoint_id FROM series_checkpoints WHERE series = $series AND is_base", series=series
    )
    return str(found["checkpoint_id"][0])[:8]


def kept_from(
    path: Path, settings: Mapping[str, Any], made_here: Collection[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return rows and costs of other series from an earlier table with the same settings."""
    if not path.is_file():
        return [], []
    earlier = json.loads(path.read_text(encoding="utf-8"))
    if earlier["settings"] != json.loads(json.dumps(settings)):
        return [], []
    rows = [row for row in earlier["series"] if row["series"] not in made_here]
    names = {row["series"] for row in rows}
    return rows, [cost for cost in earlier["costs"] if cost["series"] in names]


def kind_row(store: OpenStore, series: str, step: int, kind: str) -> dict[str, Any]:
    """Return the accuracy at the base and at ``step`` for a kind of problems, and how many of them fell."""
    counts = store.frame(
        """
        SELECT problem_id, step, avg(correct::INTEGER) AS solved
        FROM graded_samples JOIN problems USING (problem_id)
        WHERE series = $series AND step IN (0, $step) AND NOT greedy AND in_first_round
          AND regexp_matches(prompt, $pattern)
        GROUP BY ALL
        """,
        series=series,
        step=step,
        pattern=KINDS[kind],
    ).pivot(index="problem_id", columns="step", values="solved")
    if counts.empty:
        return {"kind": kind, "problems": 0, "base": None, "last": None, "fell": 0}
    base, last = counts[0], counts[step]
    return {
        "kind": kind,
        "problems": len(counts),
        "base": digits(float(base.mean()), 3),
        "last": digits(float(last.mean()), 3),
        "fell": int((last < base).sum()),
    }


def form_row(store: OpenStore, series: str, step: int, form: str) -> dict[str, Any]:
    """Return how many correct samples have a form, at the base and at ``step``.

    ``change``: change of the share, with a 95 % bootstrap interval over problems. None if a side has no samples.
    """
    kind, pattern = FORMS[form]
    counts = store.frame(
        """
        SELECT
            problem_id,
            count(*) FILTER (step = 0 AND is_so) AS base_hits,
            count(*) FILTER (step = 0) AS base_n,
            count(*) FILTER (step > 0 AND is_so) AS last_hits,
            count(*) FILTER (step > 0) AS last_n
        FROM (
            SELECT problem_id, step, regexp_matches(trim(split_part(text, 'The answer', 1)), $pattern) AS is_so
            FROM graded_samples JOIN problems USING (problem_id)
            WHERE series = $series AND step IN (0, $step) AND correct AND NOT greedy AND in_first_round
              AND regexp_matches(prompt, $kind)
        )
        GROUP BY problem_id
        ORDER BY problem_id
        """,
        series=series,
        step=step,
        pattern=pattern,
        kind="" if kind is None else KINDS[kind],
    ).drop(columns="problem_id")
    row = {"form": form, "kind": kind, "problems": len(counts), **{name: int(n) for name, n in counts.sum().items()}}
    if not (row["base_n"] and row["last_n"]):
        return {**row, "change": None}
    columns_PX = counts.to_numpy(np.float64)
    mean_DX = np.vstack(
        [columns_PX.mean(axis=0), resampled_means(columns_PX, rng=np.random.default_rng(0), draws=_DRAWS)]
    )
    with np.errstate(invalid="ignore"):
        change_D = mean_DX[:, 2] / mean_DX[:, 3] - mean_DX[:, 0] / mean_DX[:, 1]
    low, high = np.nanquantile(change_D[1:], [0.025, 0.975])
    return {**row, "change": {"value": digits(change_D[0], 3), "low": digits(low, 3), "high": digits(high, 3)}}


def finding(
    store: OpenStore, series: str, step: int, measure: str, scope: str, k: int | None = None
) -> dict[str, Any] | None:
    """Return value, interval, n and reason of one finding; None if it does not exist."""
    rows = store.frame(
        """
        SELECT k, value, low, high, n, why FROM findings
        WHERE series = $series AND step = $step AND measure = $measure AND scope = $scope
            AND ($k IS NULL OR k = $k)
        ORDER BY k DESC
        LIMIT 1
        """,
        series=series,
        step=step,
        measure=measure,
        scope=scope,
        k=k,
    )
    if rows.empty:
        return None
    found = rows.astype(object).where(rows.notna(), None).iloc[0].to_dict()
    return {name: digits(value, 4) if isinstance(value, float) else value for name, value in found.items()}


def costs_of(path: Path) -> list[dict[str, Any]]:
    """Return the cost of each stage over all its parts, in order of their start.

    ``memory_gib`` is the maximum.
    """
    total: dict[tuple[str, str | None], dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        row = total.setdefault(
            (one["stage"], one["series"]),
            {"stage": one["stage"], "series": one["series"], "wall_s": 0.0, "cpu_s": 0.0, "memory_gib": 0.0},
        )
        for name in ("wall_s", "cpu_s"):
            row[name] = round(row[name] + one[name], 1)
        row["memory_gib"] = max(row["memory_gib"], one["memory_gib"])
        row["ended_well"] = one["exit_code"] in (0, LEFT_OUT_EXIT_CODE)
    return list(total.values())


def markdown(result: Mapping[str, Any]) -> str:
    """Return both tables with their settings."""
    settings = result["settings"]
    first, last = settings["ks"][0], settings["ks"][-1]
    lines = [
        "# A real model",
        "",
        f"Made by `make llm`: {result['model']}, {result['machine']}. {settings['problems']} held-out problems, "
        f"n = {settings['n']} ({settings['n_base']} of the base). Values are those of the last checkpoint beside the "
        "base's, in brackets 95 % intervals; sentences are about the last third. The base is warmed up anew on every "
        "machine: series of one base are told by the same name of it, the first characters of its weights' hash.",
        "",
        f"| series | base | products in | verdict | pass@{first}, base | pass@{first} | pass@{last}, base "
        f"| pass@{last} | change of pass@{last} | gain over the base drawn colder | entropy, nats per token | tokens |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in result["series"]:
        cells = [
            row["series"],
            row["base"] or "not noted",
            row["precision"],
            (row["label"] or "none").replace("_", " "),
            *(with_interval(row[f"{who}pass_at_{k}"]) for k in (first, last) for who in ("base_", "")),
            with_interval(row[f"pass_at_{last}_delta"]),
            *(with_interval(row[name]) for name in ("frontier_gain", "token_entropy", "response_tokens")),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(f"- {row['series']}: {row['sentence']}" for row in result["series"]), ""]
    lines += [
        "| samples correct, base → last checkpoint (problems that fell) |" + "".join(f" {kind} |" for kind in KINDS)
    ]
    lines += ["|---|" + "---|" * len(KINDS)]
    for row in result["series"]:
        cells = [
            f"{_short(one['base'])} → {_short(one['last'])} ({one['fell']} of {one['problems']})"
            if one["problems"]
            else "none"
            for one in row["kinds"]
        ]
        lines.append(f"| {row['series']} | " + " | ".join(cells) + " |")
    lines += ["", *_forms(result["series"])]
    lines += [
        "",
        "| stage | CPU s | by `oversharp plan --cost` | wall s, beside other work | over its sampling "
        "| largest process, GiB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in result["costs"]:
        name = f"{one['stage']} {one['series'] or ''}{'' if one['ended_well'] else ' (did not end well)'}"
        planned = f"{one['planned_cpu_s']:,.0f}" if "planned_cpu_s" in one else ""
        over = f"{one['over_sampling']:.2f}" if "over_sampling" in one else ""
        cells = (name, f"{one['cpu_s']:,.0f}", planned, f"{one['wall_s']:,.0f}", over, f"{one['memory_gib']:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _forms(series: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of forms. Earlier series without forms are omitted."""
    lines = [
        "| correct samples written so, base → last checkpoint: change of their share | " + " | ".join(FORMS) + " |",
        "|---|" + "---|" * len(FORMS),
    ]
    for row in series:
        cells = [
            f"{one['base_hits']} of {one['base_n']:,} → {one['last_hits']} of {one['last_n']:,}: "
            + with_interval(one["change"])
            for one in row.get("forms", ())
        ]
        lines += [f"| {row['series']} | " + " | ".join(cells) + " |"] if cells else []
    return lines


def with_interval(found: Mapping[str, Any] | None) -> str:
    """Format a value with its interval, if there is one.

    >>> with_interval({"value": 0.25, "low": 0.2, "high": 0.3})
    '.250 [.200, .300]'
    >>> with_interval({"value": None, "low": 0.17, "high": None})
    'surely above .170'
    """
    if found is None or (found["value"] is None and found["low"] is None):
        return "unknown"
    if found["value"] is None:  # the base never reaches it, so there is only a lower bound
        return f"surely above {_short(found['low'])}"
    text = _short(found["value"])
    if found["low"] is None and found["high"] is None:
        return text
    low, high = ("unknown" if end is None else _short(end) for end in (found["low"], found["high"]))
    return f"{text} [{low}, {high}]"


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}".replace("0.", ".", 1)
