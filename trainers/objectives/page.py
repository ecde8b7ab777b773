"""Generate ``docs/objectives.md`` from docstrings: ``python -m oversharp.trainers.objectives.page``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from itertools import groupby
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from rich.console import Console
from rich.markup import escape

from oversharp.trainers import objectives
from oversharp.trainers.objectives import DEFAULTS, entries
from oversharp.trainers.objectives.contract import Need, Part, Preset

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
    out.print("--algorithm joins parts with +. Settings follow a colon: rloo+iac:alpha=0.5+token_mean")
    out.print(f"Default parts: {DEFAULTS} (GRPO). A setting shown as ... is required; none means unset.")
    out.print("docs/objectives.md explains each part. docs/agreement.md has the names in verl and TRL.")
    for kind, parts in groupby(entries(), key=lambda entry: entry.kind):
        out.print(f"\n[bold]{_PLACES[kind]}[/bold]")
        for entry in parts:
            joint = " = " if kind == "preset" else ":"
            settings = f"{joint}{entry.settings}" if entry.settings else ""
            brings = f"; brings {entry.brings}" if entry.brings else ""
            out.print(f"  {entry.name}{escape(settings)}\n      {escape(entry.title)} ({escape(entry.source)}){brings}")


PAGE = Path(__file__).resolve().parents[2] / "docs" / "objectives.md"

#: Kind of part → heading on the page.
HEADINGS: Mapping[str, str] = MappingProxyType(
    {
        "preset": "Presets",
        "shaping": "Shapings: change rewards",
        "estimator": "Estimators: from rewards to advantages",
        "calibration": "Calibrations: change advantages, remove samples",
        "surrogate": "Surrogates: the loss of a token",
        "penalty": "Penalties: additional losses of a token",
        "aggregation": "Aggregations: from token losses to one number",
        "correction": "Correction: rollouts of another engine, or of DLC",
        "rehearsal": "Rehearsal: samples of the reference",
        "decoding": "Decoding: how rollouts are sampled",
        "resampling": "Resampling: which prompts are used",
    }
)

INTRODUCTION = """# Objectives

In `oversharp train --algorithm EXPRESSION`, the expression has names of the parts below, joined by `+`. Settings of a
part follow its name after `:`. `oversharp train --list` prints a short list.

```
iac:alpha=0.5                                  GRPO with calibrated advantages
rloo+iac+kl:kind=k3,beta=0.01+token_mean       another estimator and aggregation, and a penalty
dapo:high=0.3+overlong:length=512              a preset with one changed setting, and a shaping
```

- An expression may have any number of shapings, calibrations (applied in order) and penalties. It has at most one part
  of every other kind.
- The default parts are those of GRPO: `{defaults}`. A part in the expression replaces the default of its kind.
- A preset expands to several parts, and some parts bring others. Parts in the expression replace these.
- A combination in which a part has no effect is an error, such as `iac+negative_only`.
- A part or setting that has no effect in a run of the given size is an error too. Examples: `iac` with
  `--group-size 2`, `easy_filter:share=0.02` with 32 prompts, `overlong` with a limit above the maximum response length,
  `cap` of `importance:mode=exact`.

[Agreement](agreement.md) lists the names of these parts in verl and TRL, and differences in conventions.
[Integrations](integrations.md) describes IAC and GRPO-N inside those trainers.

In the formulas:

- r and A: reward and advantage of a response. All its tokens have the same advantage.
- G: rollouts per prompt (`--group-size`). N: number of samples in the divisor of the loss. These are all samples of the
  batch unless a calibration removes some. |y|: tokens of a response, including the end token.
- pi: the trained policy. pi_old: the policy that sampled the batch. pi_ref: the reference, by default the policy that
  the run started from (`--reference`).
- rho_t: pi(y_t) / pi_old(y_t), which is 1 with one update per batch (`--updates-per-batch`). sg: stop-gradient.
- correct: accepted by the verifier with full reward, before any shaping.

[A] is *When Sharpening Becomes Collapse* (arXiv 2601.15609), [B] *The Debate on RLVR Reasoning Capability Boundary*
(arXiv 2510.04028), [C] *The Reasoning Boundary Paradox* (OpenReview). The softmax worlds of [A] are toy problems in
which a softmax over a few answers is trained. Results on them are from our own runs (`benchmarks/toy/`).

Each part or preset is one file in a folder of `trainers/objectives/`. This page is generated from their docstrings by
`python -m oversharp.trainers.objectives.page`.
"""


def page() -> str:
    """Return the page as Markdown. Loads torch.

    >>> "### `iac`" in page()
    True
    """
    chapters: dict[str, list[str]] = {}
    for entry in objectives.entries():
        chapters.setdefault(entry.kind, [f"## {HEADINGS[entry.kind]}"]).append(_section(entry.name))
    paragraphs = [INTRODUCTION.format(defaults=objectives.DEFAULTS).rstrip()]
    return "\n\n".join(paragraphs + [text for chapter in chapters.values() for text in chapter]) + "\n"


def write() -> None:
    """Write the page to ``docs/objectives.md``."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")


def _section(name: str) -> str:
    """Return the section of one part or preset."""
    module = objectives.module_of(name)
    if hasattr(module, "PRESET"):
        preset: Preset = module.PRESET
        return "\n\n".join([f"### `{name}`", f"Short for `{preset.expression}`.", _prose(module)])
    part: type[Part] = module.PART
    paragraphs = [f"### `{name}`", _prose(module)]
    if fields(part):  # type: ignore[arg-type]
        paragraphs += [_prose(part), _settings(part)]
    if part.needs:
        paragraphs.append(f"Costs {', '.join(_NEEDS[need] for need in sorted(part.needs))}.")
    if part.brings:
        paragraphs.append(f"Brings `{part.brings}` unless the expression has others of these kinds.")
    return "\n\n".join(paragraphs)


_NEEDS: Mapping[Need, str] = MappingProxyType(
    {
        "entropy": "a pass over the probabilities of the whole vocabulary at every trained token",
        "greedy": "one greedy response per prompt and step",
        "reference_logp": "a forward pass of the reference over the rollouts",
    }
)


def _prose(documented: ModuleType | type[Part]) -> str:
    """Return the docstring without examples, as Markdown. Its indented blocks and backticks are valid Markdown."""
    paragraphs = re.split(r"\n\s*\n", inspect.getdoc(documented) or "")
    return "\n\n".join(paragraph for paragraph in paragraphs if not paragraph.lstrip().startswith(">>>"))


def _settings(part: type[Part]) -> str:
    """Return the table of a part's settings."""
    types = get_type_hints(part)
    rows = ["| setting | value | default |", "|---|---|---|"]
    for field in fields(part):  # type: ignore[arg-type]
        default = {None: "not set", MISSING: "required"}.get(field.default, f"`{str(field.default).lower()}`")
        rows.append(f"| `{field.name}` | {_values(types[field.name])} | {default} |")
    return "\n".join(rows)


def _values(kind: Any) -> str:
    """Return the valid values of a setting as text."""
    if get_origin(kind) is Literal:
        return ", ".join(f"`{option}`" for option in get_args(kind))
    plain = next((option for option in get_args(kind) if option is not type(None)), kind)
    return {bool: "`true`, `false`", int: "whole number", float: "number", str: "text"}[plain]


if __name__ == "__main__":
    write()
