"""``docs/objectives.md``, from the parts' docstrings; ``python -m oversharp.trainers.objectives.page`` writes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from oversharp.trainers import objectives
from oversharp.trainers.objectives.contract import Need, Part, Preset

PAGE = Path(__file__).resolve().parents[2] / "docs" / "objectives.md"

#: Headings by kind of part.
HEADINGS: Mapping[str, str] = MappingProxyType(
    {
        "preset": "Presets",
        "shaping": "Shaping: other rewards",
        "estimator": "Estimators: from rewards to advantages",
        "calibration": "Calibrations: other advantages, fewer samples",
        "surrogate": "Surrogates: the loss of a token",
        "penalty": "Penalties: further losses of a token",
        "aggregation": "Aggregations: from tokens to one number",
        "correction": "Correction: rollouts of another engine, or of DLC",
        "rehearsal": "Rehearsal: samples of the reference",
        "decoding": "Decoding: other rollouts",
        "resampling": "Resampling: other prompts",
    }
)

INTRODUCTION = """# Objectives

`oversharp train --algorithm EXPRESSION` takes names of the parts below, joined by `+`, with settings after `:`.
`oversharp train --list` prints them in short.

```
iac:alpha=0.5                                  GRPO with its advantages calibrated
rloo+iac+kl:kind=k3,beta=0.01+token_mean       another estimator and aggregation, and a penalty
dapo:high=0.3+overlong:length=512              a preset with one setting changed, and a shaping
```

- Any number of shapings, calibrations (they apply in the order written) and penalties; one of every other kind.
- What is not named is GRPO's: `{defaults}`.
- A preset stands for several parts, and some parts bring others; a named part displaces these.
- Two parts of which one can have no effect beside the other are refused, such as `iac+negative_only`.
- So are parts and settings that change nothing in a run of its size, whose gradient is the same with and without them:
  `iac` with `--group-size 2`, `easy_filter:share=0.02` of 32 prompts, `overlong` behind the longest response, `cap` of
  `importance:mode=exact`.

What verl and TRL call these parts, and where their conventions differ: [agreement](agreement.md). IAC and GRPO-N inside
those trainers: [integrations](integrations.md).

In the formulas:

- r and A: reward and advantage of a response. All its tokens have the same advantage.
- G: rollouts of a prompt (`--group-size`). N: the samples of a batch that count, which are all unless a calibration
  takes some out. |y|: tokens of a response, the end token included.
- pi: the policy that is trained. pi_old: the one that drew the batch. pi_ref: the reference, which is the policy that
  the run started from unless `--reference` names another.
- rho_t: pi(y_t) / pi_old(y_t), which is 1 with one update per batch (`--updates-per-batch`). sg: without gradient.
- correct: accepted by the verifier with full reward, whatever a shaping makes of that reward.

[A] is *When Sharpening Becomes Collapse* (arXiv 2601.15609), [B] *The Debate on RLVR Reasoning Capability Boundary*
(arXiv 2510.04028), [C] *The Reasoning Boundary Paradox* (OpenReview). Where [A]'s softmax worlds are mentioned, the
findings are those of our own runs of them (`benchmarks/toy/`).

A part or preset is one file in a folder of `trainers/objectives/`, and this page is made from those files' docstrings
by `python -m oversharp.trainers.objectives.page`.
"""


def page() -> str:
    """The whole page as Markdown; loads torch.

    >>> "### `iac`" in page()
    True
    """
    chapters: dict[str, list[str]] = {}
    for entry in objectives.entries():
        chapters.setdefault(entry.kind, [f"## {HEADINGS[entry.kind]}"]).append(_section(entry.name))
    paragraphs = [INTRODUCTION.format(defaults=objectives.DEFAULTS).rstrip()]
    return "\n\n".join(paragraphs + [text for chapter in chapters.values() for text in chapter]) + "\n"


def write() -> None:
    """Write the page to its place in the source tree."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")


def _section(name: str) -> str:
    """The section of one part or preset."""
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
        paragraphs.append(f"Brings `{part.brings}` unless others are named.")
    return "\n\n".join(paragraphs)


_NEEDS: Mapping[Need, str] = MappingProxyType(
    {
        "entropy": "a pass over the vocabulary's probabilities at every token that is learnt from",
        "greedy": "one greedy response per prompt and step",
        "reference_logp": "a forward pass of the reference over the rollouts",
    }
)


def _prose(documented: ModuleType | type[Part]) -> str:
    """The docstring without its examples. What it indents is a code block in Markdown too, as are its back-ticks."""
    paragraphs = re.split(r"\n\s*\n", inspect.getdoc(documented) or "")
    return "\n\n".join(paragraph for paragraph in paragraphs if not paragraph.lstrip().startswith(">>>"))


def _settings(part: type[Part]) -> str:
    """Table of a part's settings."""
    types = get_type_hints(part)
    rows = ["| setting | value | default |", "|---|---|---|"]
    for field in fields(part):  # type: ignore[arg-type]
        default = {None: "not set", MISSING: "must be given"}.get(field.default, f"`{str(field.default).lower()}`")
        rows.append(f"| `{field.name}` | {_values(types[field.name])} | {default} |")
    return "\n".join(rows)


def _values(kind: Any) -> str:
    """The values that a setting takes, in words."""
    if get_origin(kind) is Literal:
        return ", ".join(f"`{option}`" for option in get_args(kind))
    plain = next((option for option in get_args(kind) if option is not type(None)), kind)
    return {bool: "`true`, `false`", int: "whole number", float: "number", str: "text"}[plain]


if __name__ == "__main__":
    write()
