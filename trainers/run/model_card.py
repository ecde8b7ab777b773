"""The model card of a checkpoint: base model, objective, settings, metrics, and the command that audits the run.

It is Markdown with YAML front matter for the Hugging Face Hub. It contains no times, so equal runs have equal cards.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.trainers.config import DEFAULT_WORLD, TrainConfig, settings_of, to_toml
from oversharp.trainers.objectives import terms

if TYPE_CHECKING:
    from oversharp.trainers.objectives.contract import Objective
    from oversharp.trainers.run.directory import RunPart

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
#: Settings that the card omits, because the model does not depend on them.
_NOT_SETTINGS = frozenset({"resume", "output_dir", "tracker", "device", "threads"})
#: (Suffix of a metric's name, unit). The first match applies.
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
#: Suffixes of the names of metrics that are times or rates. The card omits these.
_TIMES = ("_s", "_per_s")


def audit_command(config: TrainConfig) -> str:
    """Return the command that audits the run, with its prompt format, on problems outside the training set.

    >>> audit_command(TrainConfig(output_dir=Path("runs/iac"), prompt_template="Q: {prompt}"))
    "oversharp audit runs/iac --task countdown --prompt-template 'Q: {prompt}'"
    """
    words = ["oversharp", "audit", str(config.output_dir)]
    words += (
        ["--problems", "HELD_OUT.jsonl"] if config.problems is not None else ["--task", config.task or DEFAULT_WORLD]
    )
    if config.prompt_template != "{prompt}":
        words += ["--prompt-template", config.prompt_template]
    if config.chat:
        words.append("--chat")
    if config.chat_args is not None:
        words += ["--chat-args", config.chat_args]
    if config.system_prompt:
        words += ["--system-prompt", config.system_prompt]
    return shlex.join(words)


def model_card(
    config: TrainConfig,
    objective: Objective,
    *,
    step: int,
    metrics: Mapping[str, float | int],
    parts: Sequence[RunPart],
) -> str:
    """Return the README.md of the checkpoint after ``step``.

    ``metrics`` are the metrics of ``step`` by their names in ``metrics.jsonl``, empty at step 0. ``parts`` are the
    parts of the run up to now, in order.
    """
    name = config.output_dir.name
    task = config.task or (DEFAULT_WORLD if config.problems is None else config.problems.name)
    start = (
        f"the base of the built-in task {config.world}, trained by supervised fine-tuning"
        if config.model is None
        else f"`{config.model}`"
    )
    sources = "".join(f"- {part.title} ({part.source})\n" for part in objective.parts)
    settings = {key: value for key, value in settings_of(config).items() if key not in _NOT_SETTINGS}
    progress = f"after {step} steps of" if step else "before"
    versions = _versions_by_step(parts, step)
    last_versions: Mapping[str, str | None] = versions[max(versions)] if versions else {}
    return f"""{_front_matter(config)}
# {name}, step {step}

A language model {progress} on-policy reinforcement learning with verifiable rewards on `{task}`, trained with
oversharp {last_versions.get("oversharp") or ""} to study over-sharpening. It started from {start}.

## Objective

`{objective.expression}`

{sources}
## Settings

```toml
[train]
{to_toml(settings)}```

## Metrics

{_metrics_text(step, metrics)}
An audit compares the model with its base, on problems outside the training set:

```bash
{audit_command(config)}
```

## Versions

{_versions_text(versions)}
"""


def unit_of(metric: str) -> str:
    """Return the unit of a metric, which its name implies; "" if unknown.

    >>> unit_of("token_entropy_nats"), unit_of("truncation_rate"), unit_of("grad_norm")
    ('nats per token', 'share of responses', '')
    """
    return next((unit for end, unit in _UNITS if metric.endswith(end)), "")


def _front_matter(config: TrainConfig) -> str:
    """Return the YAML front matter. Strings are in JSON, which is valid YAML."""
    names = [term.name for term in terms(config.algorithm)]
    tags = ["oversharp", "reinforcement-learning", "rlvr", *names, *(["lora"] if config.lora_rank else [])]
    on_hub = config.model is not None and _HUB_NAME.fullmatch(config.model) and not Path(config.model).exists()
    lines = [
        *([f"base_model: {json.dumps(config.model)}"] if on_hub else []),
        f"library_name: {'peft' if config.lora_rank else 'transformers'}",
        f"model_name: {json.dumps(config.output_dir.name, ensure_ascii=False)}",
        "pipeline_tag: text-generation",
        "tags:",
        *(f"- {json.dumps(tag)}" for tag in dict.fromkeys(tags)),
    ]
    return "\n".join(["---", *lines, "---", ""])


def _versions_by_step(parts: Sequence[RunPart], step: int) -> dict[int, Mapping[str, str | None]]:
    """Return first step → versions of the software that trained the checkpoint from this step on.

    If two parts of the run start after the same step, the first part saved nothing and is ignored. Parts with equal
    versions are merged, so that an interrupted run has the same card as an uninterrupted run.
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


def _metrics_text(step: int, metrics: Mapping[str, float | int]) -> str:
    shown = {
        name: value
        for name, value in metrics.items()
        if name not in ("step", "learning_rate") and not name.endswith(_TIMES)
    }
    if not shown:
        return "None: this is the model before its first step.\n"
    rows = "".join(f"| {name} | {value:.4g} | {unit_of(name)} |\n" for name, value in shown.items())
    head = "| metric | value | unit |\n|---|---|---|\n"
    return f"Computed by the trainer on the batch of step {step}.\n\n{head}{rows}"
