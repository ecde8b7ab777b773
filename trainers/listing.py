"""What `oversharp train --list` prints: every part of an objective, by the place that it takes."""

from __future__ import annotations

from itertools import groupby

from rich.console import Console
from rich.markup import escape

from trainers.objectives import entries

_PLACES = {
    "preset": "presets: whole objectives of papers",
    "shaping": "shapings: change rewards before anything compares them; any number",
    "estimator": "estimators: rewards to advantages; one, grpo unless named",
    "calibration": "calibrations: change advantages or take samples out; any number, in the order written",
    "surrogate": "surrogates: the loss of a token; one, clip unless named",
    "penalty": "penalties: added to the loss of every token; any number",
    "aggregation": "aggregations: tokens to one number; one, seq_mean_token_mean unless named",
    "correction": "correction: for rollouts that another law drew; one or none",
    "rehearsal": "rehearsal: samples of the reference to learn from; one or none",
    "decoding": "decoding: how rollouts are drawn; one or none",
    "resampling": "resampling: which prompts are drawn; one or none",
}


def print_objectives(console: Console | None = None) -> None:
    """All parts and presets with their settings' defaults and sources."""
    out = console or Console(highlight=False, soft_wrap=True)
    out.print("--algorithm joins parts with +, settings behind a colon: rloo+iac:alpha=0.5+token_mean")
    for kind, parts in groupby(entries(), key=lambda entry: entry.kind):
        out.print(f"\n[bold]{_PLACES[kind]}[/bold]")
        for entry in parts:
            joint = " = " if kind == "preset" else ":"
            settings = f"{joint}{entry.settings}" if entry.settings else ""
            out.print(f"  {entry.name}{escape(settings)}\n      {escape(entry.title)} ({escape(entry.source)})")
