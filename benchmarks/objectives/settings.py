"""Rows of the tables of objectives: the settings of training runs, and where their results are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oversharp.diagnostics.tasks import countdown, programs

OUT = Path("runs/objectives")
#: Level of pass@1 at which runs of a world are compared. Every objective that learns at all reaches it.
MATCHED_PASS_AT_1 = {countdown.TASK: 0.40, programs.TASK: 0.30}
#: Steps of supervised training of a world's base.
BASE_STEPS = {countdown.TASK: 1200, programs.TASK: 2000}
WORLD_TITLES = {countdown.TASK: "Countdown-mini", programs.TASK: "Programs-mini"}
#: k of the frontier.
K = 128


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One row: the settings of a training run.

    ``problems`` names a separate training set. None uses the whole split of the world ``task``.
    """

    name: str
    algorithm: str
    task: str = countdown.TASK
    group_size: int = 8
    learning_rate: float = 2e-4
    problems: str | None = None


MAIN = (
    Setting(name="GRPO", algorithm="grpo"),
    Setting(name="GRPO, half the learning rate", algorithm="grpo", learning_rate=1e-4),
    Setting(name="IAC", algorithm="iac"),
    Setting(name="IAC, scale-matched", algorithm="iac:scale_matched=true"),
    Setting(name="GRPO-N", algorithm="grpo_n"),
    Setting(name="SELF, β .02", algorithm="self:beta=0.02"),
    Setting(name="DLC, μ .5", algorithm="dlc:mu=0.5"),
    Setting(name="IAC + DLC", algorithm="iac+dlc:mu=0.5"),
)
TABLES: Mapping[str, tuple[Setting, ...]] = {
    "main": MAIN,
    "alpha": (
        *(Setting(name=f"IAC, α {alpha}", algorithm=f"iac:alpha={alpha}") for alpha in (0, 0.5, 1, 1.5, 2)),
        Setting(name="easiest quarter left out", algorithm="easy_filter"),
    ),
    "mu": tuple(Setting(name=f"DLC, μ {mu}", algorithm=f"dlc:mu={mu}") for mu in (0.25, 0.5, 0.75, 1)),
    "group": tuple(Setting(name=f"GRPO, G {size}", algorithm="grpo", group_size=size) for size in (4, 8, 16, 32)),
    "coupling": (
        Setting(name="trained on the audited triples", algorithm="grpo", problems="related"),
        Setting(name="trained on other triples", algorithm="grpo", problems="unrelated"),
    ),
    "programs": (
        Setting(name="GRPO", algorithm="grpo", task=programs.TASK),
        Setting(name="IAC", algorithm="iac", task=programs.TASK),
        Setting(name="DAPO", algorithm="dapo", task=programs.TASK),
        Setting(name="DAPO + IAC", algorithm="dapo+iac", task=programs.TASK),
    ),
}
#: Result files and their tables. A file has tables of one world.
PAGES: Mapping[str, tuple[str, ...]] = {
    "objectives": ("main", "alpha", "coupling"),
    "objectives_sweeps": ("mu", "group"),
    "programs": ("programs",),
}
#: Tables with the seeds of ``--main-seeds``, and the positions relative to the base at lower temperatures.
WITH_POSITIONS = frozenset({"main", "programs"})
TITLES = {
    "main": "Objectives",
    "programs": "Objectives",
    "alpha": "IAC's exponent, and a filter ([A], Table 5)",
    "mu": "DLC's μ",
    "group": "Group size",
    "coupling": "Which problems are trained on: coupling isolated",
}


#: Settings that are equal to others: α = 0 changes nothing, α = 1 is the default.
_SAME = {"iac:alpha=0": "grpo", "iac:alpha=1": "iac"}


def used_algorithm(setting: Setting) -> str:
    """Return the objective to train with. Equal settings have one."""
    return _SAME.get(setting.algorithm, setting.algorithm)


def folder(setting: Setting, seed: int) -> Path:
    """Return the folder of a run."""
    return OUT / folder_name(setting) / f"seed-{seed}"


def folder_name(setting: Setting) -> str:
    """Return the name of a setting's folder. Equal settings of two tables share one."""
    expression = used_algorithm(setting).replace(":", "_").replace("=", "").replace("+", "_").replace(",", "_")
    prefix = [] if setting.task == countdown.TASK else [setting.task]
    parts = [*prefix, expression, f"g{setting.group_size}", f"lr{setting.learning_rate:g}"]
    return "-".join(parts + ([setting.problems] if setting.problems else []))


def task_flag(task: str) -> str | None:
    """Return the task as a setting; None for the default, as in runs of earlier versions."""
    return None if task == countdown.TASK else task


def task_of(tables: Iterable[str]) -> str:
    """Return the world of these tables, which have one."""
    [task] = {setting.task for name in tables for setting in TABLES[name]}
    return task
