"""The model card of a checkpoint: what it was made from, how, how far it got, and how to audit it.

Markdown under YAML front matter, as the Hugging Face Hub reads it. Equal runs give equal cards: times are left out.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.tasks.countdown import TASK
from oversharp.trainers.config import TrainConfig, settings_of, to_toml

if TYPE_CHECKING:
    from oversharp.trainers.objectives.contract import Objective
    from oversharp.trainers.run.directory import RunPart

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
#: Where the run goes on and lies is no property of the model.
_NOT_SETTINGS = frozenset({"resume", "output_dir", "tracker", "device", "threads"})
#: By the end of a metric's name, the first that fits.
_UNITS = (
    ("_nats", "nats per token"),
    ("logp_gap_mean", "nats per token"),
    ("logp_gap_max", "nats per token"),
    ("_tokens_mean", "tokens"),
    ("_rate", "share of responses"),
    ("frac_zero_std", "share of prompts"),
    ("_fraction", "share of tokens"),
    ("correct_variety", "probability"),
    ("correct_responses", "responses per prompt"),
    ("samples_skipped", "responses"),
    ("_warnings", "count"),
    ("reward_mean", "reward"),
)
#: Ends of the names of times.
_TIMES = ("_s", "_per_s")


@dataclass(frozen=True, kw_only=True)
class CardPart:
    """One part of the objective: what it is called, and the paper and place that it comes from."""

    title: str
    source: str


@dataclass(frozen=True, kw_only=True)
class CardRecord:
    """The content of a card. ``start`` names the base in prose; ``hub_base`` is None unless it is a model of the Hub.

    ``tags`` are the objective's names as written, ``metrics`` those of ``step`` by their names in ``metrics.jsonl``
    (empty at step 0). ``versions`` are by the first step that was made with them, None for packages that are not
    installed.
    """

    name: str
    step: int
    start: str
    hub_base: str | None
    expression: str
    parts: tuple[CardPart, ...]
    tags: tuple[str, ...]
    task: str
    settings: Mapping[str, str | int | float | bool]
    metrics: Mapping[str, float | int]
    versions: Mapping[int, Mapping[str, str | None]]
    is_adapter: bool
    audit_command: str


def card_record(
    config: TrainConfig,
    objective: Objective,
    *,
    step: int,
    metrics: Mapping[str, float | int],
    parts: Sequence[RunPart],
) -> CardRecord:
    """The card's content for the checkpoint after ``step``; ``metrics`` are those of that step, empty for step 0.

    ``parts`` are those of the run so far, in the order that they were started.
    """
    from oversharp.trainers.objectives import terms

    own_base = f"the base of the built-in task {TASK}, trained by supervised fine-tuning"
    on_hub = config.model is not None and _HUB_NAME.fullmatch(config.model) and not Path(config.model).exists()
    return CardRecord(
        name=config.output_dir.name,
        step=step,
        start=own_base if config.model is None else f"`{config.model}`",
        hub_base=config.model if on_hub else None,
        expression=objective.expression,
        parts=tuple(CardPart(title=part.title, source=part.source) for part in objective.parts),
        tags=tuple(term.name for term in terms(config.algorithm)),
        task=config.task or (TASK if config.problems is None else config.problems.name),
        settings={name: value for name, value in settings_of(config).items() if name not in _NOT_SETTINGS},
        metrics=metrics,
        versions=_versions_by_step(parts, step),
        is_adapter=config.lora_rank > 0,
        audit_command=audit_command(config),
    )


def audit_command(config: TrainConfig) -> str:
    """The command that audits the run: with the prompts that it was trained on, and problems that it was not.

    >>> audit_command(TrainConfig(output_dir=Path("runs/iac"), prompt_template="Q: {prompt}"))
    "oversharp audit runs/iac --task countdown --prompt-template 'Q: {prompt}'"
    """
    words = ["oversharp", "audit", str(config.output_dir)]
    words += ["--problems", "HELD_OUT.jsonl"] if config.problems is not None else ["--task", config.task or TASK]
    if config.prompt_template != "{prompt}":
        words += ["--prompt-template", config.prompt_template]
    if config.chat:
        words.append("--chat")
    if config.chat_args is not None:
        words += ["--chat-args", config.chat_args]
    if config.system_prompt:
        words += ["--system-prompt", config.system_prompt]
    return shlex.join(words)


def model_card(record: CardRecord) -> str:
    """The README.md of a checkpoint."""
    done = f"after {record.step} steps of" if record.step else "before"
    sources = "".join(f"- {part.title} ({part.source})\n" for part in record.parts)
    last_versions: Mapping[str, str | None] = record.versions[max(record.versions)] if record.versions else {}
    return f"""{_front_matter(record)}
# {record.name}, step {record.step}

A language model {done} on-policy reinforcement learning with verifiable rewards on `{record.task}`, trained with
oversharp {last_versions.get("oversharp") or ""} to study over-sharpening. It started from {record.start}.

## Objective

`{record.expression}`

{sources}
## Settings

```toml
[train]
{to_toml(record.settings)}```

## Metrics

{_metrics(record)}
What the model gained and lost against its base is told by an audit, on problems that it was not trained on:

```bash
{record.audit_command}
```

## Versions

{_versions_text(record.versions)}
"""


def unit_of(metric: str) -> str:
    """The unit of a metric by its name, empty where the name says nothing.

    >>> unit_of("token_entropy_nats"), unit_of("truncation_rate"), unit_of("grad_norm")
    ('nats per token', 'share of responses', '')
    """
    return next((unit for end, unit in _UNITS if metric.endswith(end)), "")


def _front_matter(record: CardRecord) -> str:
    """JSON strings are YAML as they stand, whatever is in them."""
    tags = ["oversharp", "reinforcement-learning", "rlvr", *record.tags, *(["lora"] if record.is_adapter else [])]
    lines = [
        *([] if record.hub_base is None else [f"base_model: {json.dumps(record.hub_base)}"]),
        f"library_name: {'peft' if record.is_adapter else 'transformers'}",
        f"model_name: {json.dumps(record.name, ensure_ascii=False)}",
        "pipeline_tag: text-generation",
        "tags:",
        *(f"- {json.dumps(tag)}" for tag in dict.fromkeys(tags)),
    ]
    return "\n".join(["---", *lines, "---", ""])


def _versions_by_step(parts: Sequence[RunPart], step: int) -> dict[int, Mapping[str, str | None]]:
    """The versions behind the checkpoint after ``step``, by the first step made with them.

    Of two parts that began behind the same step the first left nothing. A part with the versions of the one before it
    is no change: an interrupted run has the card of a whole one.
    """
    by_first_step = {part.after_step + 1: part.versions for part in parts if part.after_step < max(step, 1)}
    changes: dict[int, Mapping[str, str | None]] = {}
    for first_step in sorted(by_first_step):
        if not changes or by_first_step[first_step] != changes[max(changes)]:
            changes[first_step] = by_first_step[first_step]
    return changes


def _versions_text(by_step: Mapping[int, Mapping[str, str | None]]) -> str:
    lines = {
        step: ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
        for step, versions in by_step.items()
    }
    return lines[1] if list(lines) == [1] else "\n".join(f"- from step {step}: {line}" for step, line in lines.items())


def _metrics(record: CardRecord) -> str:
    shown = {
        name: value
        for name, value in record.metrics.items()
        if name not in ("step", "learning_rate") and not name.endswith(_TIMES)
    }
    if not shown:
        return "None: this is the model before its first step.\n"
    rows = "".join(f"| {name} | {value:.4g} | {unit_of(name)} |\n" for name, value in shown.items())
    head = "| metric | value | unit |\n|---|---|---|\n"
    return f"The trainer's own, on the one batch of step {record.step}.\n\n{head}{rows}"
