"""Print the list of `oversharp train --list`: every part of an objective by kind."""

from __future__ import annotations

from itertools import groupby

from rich.console import Console
from rich.markup import escape

from oversharp.trainers.objectives import DEFAULTS, entries

_PLACES = {
    "preset": "presets: whole objectives of papers, with any setting of their parts (dapo:high=0.3)",
    "shaping": "shapings: change rewards before they are compared; any number",
    "estimator": "estimators: rewards to advantages; one, default grpo",
    "calibration": "calibrations: change advantages or remove samples; any number, applied in order",
    "surrogate": "surrogates: the loss of a token; one, default clip",
    "penalty": "penalties: added to the loss of every token; any number",
    "aggregation": "aggregations: token losses to one number; one, default seq_mean_token_mean",
    "correction": "correction: importance weights for rollouts of another engine or of dlc; at most one",
    "rehearsal": "rehearsal: training on samples of the reference; at most one",
    "decoding": "decoding: how rollouts are sampled; at most one",
    "resampling": "resampling: which prompts are used; at most one",
}


def print_objectives(console: Console | None = None) -> None:
    """Print all parts and presets with default settings and sources."""
    out = console or Console(highlight=False, soft_wrap=True)
    out.print("--algorithm joins parts with +, with settings after a colon: rloo+iac:alpha=0.5+token_mean")
    out.print(f"Unspecified parts are those of GRPO: {DEFAULTS}. A setting shown as ... is required; none means unset.")
    out.print("docs/objectives.md explains each part; docs/agreement.md has the names in verl and TRL.")
    for kind, parts in groupby(entries(), key=lambda entry: entry.kind):
        out.print(f"\n[bold]{_PLACES[kind]}[/bold]")
        for entry in parts:
            joint = " = " if kind == "preset" else ":"
            settings = f"{joint}{entry.settings}" if entry.settings else ""
            brings = f"; brings {entry.brings}" if entry.brings else ""
            out.print(f"  {entry.name}{escape(settings)}\n      {escape(entry.title)} ({escape(entry.source)}){brings}")
