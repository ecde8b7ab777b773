"""Verdict settings: false-accept rate, looks, runs. Some may not change after a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.settings import require_at_least, require_storable
from oversharp.diagnostics.records.types import VerdictTerms

if TYPE_CHECKING:
    from oversharp.diagnostics.store import Store

VERDICT = Parameter(group=Group("Verdict", sort_key=6))
#: Value of ``--looks`` for an unknown number of looks.
ANY: Literal["any"] = "any"
#: Values of ``--selected-by`` that are not the name of a field.
SELECTED_BY = ("base", "none")
#: Reason why an import leaves out a sample; the flag follows in parentheses.
SELECTED = "selected the problems"


@dataclass(frozen=True, kw_only=True)
class VerdictConfig:
    """Settings of the verdict that cannot be computed from the samples.

    Attributes
    ----------
    guess_rate
        False-accept rate: share of wrong responses that the grader accepts, from 0 to 1. Default: the grader's own if
        known, else an assumed one.
    looks
        Number of looks at the verdict during training, or any if unknown. Give it before the first look, because the
        error probability is divided among the looks. Default: the number given at the first look, else 1.
    runs
        Number of runs among which you choose one by its verdict. Default: the number given before, else 1.
    selected_by
        base if the problems were selected by the base samples of this audit, with a filter such as "solved, but not
        always". none if not. Default: this is tested.
    """

    guess_rate: Annotated[float | None, VERDICT] = None
    looks: Annotated[int | str | None, VERDICT] = None  # an invalid value gets an error with a hint
    runs: Annotated[int | None, VERDICT] = None
    selected_by: Annotated[str | None, VERDICT] = None  # an invalid value gets an error with a hint

    def __post_init__(self) -> None:
        require_share("--guess-rate", self.guess_rate)
        if isinstance(self.looks, str):
            if self.looks != ANY:
                raise ConfigError(f"--looks {self.looks!r}: must be a whole number, or {ANY} if the number is unknown")
        else:
            require_at_least("--looks", self.looks, 1)
            require_storable("--looks", self.looks)
        require_at_least("--runs", self.runs, 1)
        require_storable("--runs", self.runs)


def require_share(flag: str, value: float | None) -> None:
    """Raise ``ConfigError`` for a value that is not from 0 to 1."""
    if value is not None and not 0 <= value <= 1:
        raise ConfigError(f"{flag} {value}: must be between 0 and 1, for example 0.25 for choices of four options")


def require_base_or_none(selected_by: str | None) -> None:
    """Raise ``ConfigError`` for a field in ``--selected-by``, which only an import can read."""
    if selected_by not in (None, *SELECTED_BY):
        raise ConfigError(
            f"--selected-by {selected_by!r}: only oversharp import accepts a field; pass base if the problems were "
            "selected by the base samples of this audit, else none"
        )


def resolve_terms(store: Store, series: str, config: VerdictConfig) -> VerdictTerms:
    """Return the settings of the next verdict on ``series``: from ``config``, else as before.

    Raises:
        ConfigError: ``config`` changes the looks, or lowers the runs, after the first look. A number that was chosen
        with
            knowledge of the verdict would raise the error rate above the stated one.
    """
    from oversharp.diagnostics.store.load import declared_looks  # imported here, not for --help

    declared = declared_looks(store, series)
    looks = config.looks if isinstance(config.looks, int) else None
    if declared is None:
        looks = 1 if config.looks is None else looks
        return _terms(config, looks, config.runs or 1)
    steps = (
        f"steps {declared.steps[0]}–{declared.steps[-1]}" if len(declared.steps) > 1 else f"step {declared.steps[0]}"
    )
    before = f"series {series!r} had a verdict before ({steps})"
    if config.looks is not None and looks != declared.looks:
        raise ConfigError(
            f"--looks {config.looks}: {before}, with --looks {declared.looks or ANY}, which the first look fixed; "
            "remove --looks"
        )
    if config.runs is not None and config.runs < declared.runs:
        raise ConfigError(f"--runs {config.runs}: {before}, with --runs {declared.runs}; raise it or remove it")
    return _terms(config, declared.looks, max(config.runs or 1, declared.runs))


def _terms(config: VerdictConfig, looks: int | None, runs: int) -> VerdictTerms:
    # an import leaves out the samples that a field marks, so the other samples did not select the problems
    selected_by = config.selected_by if config.selected_by in (None, *SELECTED_BY) else "none"
    return VerdictTerms(guess_rate=config.guess_rate, looks=looks, runs=runs, selected_by=selected_by)
