"""The list of `oversharp train --list`: every part of an objective by the place that it takes."""

from __future__ import annotations

from itertools import groupby

from rich.console import Console
from rich.markup import escape

from oversharp.trainers.objectives import DEFAULTS, entries

_PLACES = {
    "preset": "presets: whole objectives of papers, with any setting of their parts (dapo:high=0.3)",
    "shaping": "shapings: change rewards before anything compares them; any number",
    "estimator": "estimators: rewards to advantages; one, grpo unless named",
    "calibration": "calibrations: change advantages or take samples out; any number, in the order written",
    "surrogate": "surrogates: the loss of a token; one, clip unless named",
    "penalty": "penalties: added to the loss of every token; any number",
    "aggregation": "aggregations: tokens to one number; one, seq_mean_token_mean unless named",
    "correction": "correction: importance weights for rollouts of another engine or of dlc; one or none",
    "rehearsal": "rehearsal: samples of the reference to learn from; one or none",
    "decoding": "decoding: how rollouts are drawn; one or none",
    "resampling": "resampling: which prompts are drawn; one or none",
}


def print_objectives(console: Console | None = None) -> None:
    """All parts and presets with their settings' defaults and sources."""
    out = console or Console(highlight=False, soft_wrap=True)
    out.print("--algorithm joins parts with +, settings behind a colon: rloo+iac:alpha=0.5+token_mean")
    out.print(f"What is not named is GRPO's: {DEFAULTS}. A setting shown as ... must be given; none is not set.")
    out.print("docs/objectives.md explains each part; docs/agreement.md says what verl and TRL call it.")
    for kind, parts in groupby(entries(), key=lambda entry: entry.kind):
        out.print(f"\n[bold]{_PLACES[kind]}[/bold]")
        for entry in parts:
            joint = " = " if kind == "preset" else ":"
            settings = f"{joint}{entry.settings}" if entry.settings else ""
            brings = f"; brings {entry.brings}" if entry.brings else ""
            out.print(f"  {entry.name}{escape(settings)}\n      {escape(entry.title)} ({escape(entry.source)}){brings}")
