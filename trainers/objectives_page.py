"""``docs/objectives.md``, rendered from the parts' docstrings; ``python -m trainers.objectives_page`` writes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from trainers import objectives
from trainers.objectives.contract import Need, Part, Preset

PAGE = Path(__file__).resolve().parents[1] / "docs" / "objectives.md"

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
        "correction": "Correction: rollouts of another law",
        "rehearsal": "Rehearsal: samples of the reference",
        "decoding": "Decoding: other rollouts",
        "resampling": "Resampling: other prompts",
    }
)

INTRODUCTION = """# Objectives

`oversharp train --algorithm EXPRESSION` takes an expression of the parts below, joined by `+`; settings follow a name
after `:`. An expression may name any number of shapings, calibrations and penalties, and one of every other kind. A
named part displaces what a preset or another part brings. What is not named is GRPO's: `{defaults}`.

```
iac:alpha=0.5
rloo+iac+kl:kind=k3,beta=0.01+token_mean
dapo:high=0.3+overlong:length=512
```

A part or preset is one file in `trainers/objectives/`, and this page is made from those files' docstrings by
`python -m trainers.objectives_page`.
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
    """What the page says of one part or preset."""
    module = import_module(f"trainers.objectives.{name}")
    if hasattr(module, "PRESET"):
        preset: Preset = module.PRESET
        return "\n\n".join([f"### `{name}`", f"Short for `{preset.expression}`.", _prose(module)])
    part: type[Part] = module.PART
    paragraphs = [f"### `{name}`", _prose(module)]
    if fields(part):  # type: ignore[arg-type]
        paragraphs += [_prose(part), _settings(part)]
    if part.needs:
        paragraphs.append(f"Needs: {', '.join(_NEEDS[need] for need in sorted(part.needs))}.")
    if part.brings:
        paragraphs.append(f"Brings `{part.brings}`.")
    return "\n\n".join(paragraphs)


_NEEDS: Mapping[Need, str] = MappingProxyType(
    {
        "greedy": "one greedy response per prompt",
        "reference_logp": "log-probabilities of the rollouts under the reference policy",
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
        default = "none" if field.default is None else f"`{str(field.default).lower()}`"
        rows.append(f"| `{field.name}` | {_values(types[field.name])} | {default} |")
    return "\n".join(rows)


def _values(kind: Any) -> str:
    """What a setting may be, in words."""
    if get_origin(kind) is Literal:
        return ", ".join(f"`{option}`" for option in get_args(kind))
    plain = next((option for option in get_args(kind) if option is not type(None)), kind)
    return {bool: "`true`, `false`", int: "whole number", float: "number", str: "text"}[plain]


if __name__ == "__main__":
    write()
