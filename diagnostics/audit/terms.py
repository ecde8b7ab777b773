"""What a verdict is told that no sample shows: its settings, and what of them still holds once a verdict was read."""

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
#: Of ``--looks``: nobody knows how often the verdict will be read.
ANY: Literal["any"] = "any"


@dataclass(frozen=True, kw_only=True)
class VerdictConfig:
    """What the verdict is told.

    Attributes
    ----------
    guess_rate
        Of wrong responses, the share that the grader accepts, from 0 to 1. Default: what the grader knows, else an
        assumed one.
    looks
        How often the verdict will be read while training goes on, or any. Declare it before the first: every look has
        a share of the chance of error. Default: as declared at the first, else 1.
    runs
        Of how many runs one will be chosen by its verdict. Default: as declared before, else 1.
    """

    guess_rate: Annotated[float | None, VERDICT] = None
    looks: Annotated[int | str | None, VERDICT] = None  # of any other text the border says how to mend it
    runs: Annotated[int | None, VERDICT] = None

    def __post_init__(self) -> None:
        require_share("--guess-rate", self.guess_rate)
        if isinstance(self.looks, str):
            if self.looks != ANY:
                raise ConfigError(f"--looks {self.looks!r}: must be a whole number, or {ANY} where nobody knows")
        else:
            require_at_least("--looks", self.looks, 1)
            require_storable("--looks", self.looks)
        require_at_least("--runs", self.runs, 1)
        require_storable("--runs", self.runs)


def require_share(flag: str, value: float | None) -> None:
    """Raise ``ConfigError`` for what is no share: not from 0 to 1."""
    if value is not None and not 0 <= value <= 1:
        raise ConfigError(f"{flag} {value}: must lie between 0 and 1, such as 0.25 where one of four options is right")


def settled_terms(store: Store, series: str, config: VerdictConfig) -> VerdictTerms:
    """What the next verdict on ``series`` is told: what ``config`` says, looks and runs as they were declared before.

    Raises:
        ConfigError: ``config`` changes the looks, or names fewer runs, after a verdict was read. Who has seen it may
            have chosen the number by it, and the verdicts together would err more often than they say.
    """
    from oversharp.diagnostics.store.load import declared_looks  # not for --help

    held = declared_looks(store, series)
    asked = None if config.looks == ANY else config.looks
    if held is None:
        looks = 1 if config.looks is None else asked
        return VerdictTerms(guess_rate=config.guess_rate, looks=_whole(looks), runs=config.runs or 1)
    steps = f"steps {held.steps[0]}–{held.steps[-1]}" if len(held.steps) > 1 else f"step {held.steps[0]}"
    read = f"the verdict on series {series!r} was read before ({steps})"
    if config.looks is not None and asked != held.looks:
        raise ConfigError(
            f"--looks {config.looks}: {read}, with --looks {held.looks or ANY}: looks are declared before the first; "
            "leave --looks out"
        )
    if config.runs is not None and config.runs < held.runs:
        raise ConfigError(
            f"--runs {config.runs}: {read}, with --runs {held.runs}: there may only be more; leave it out"
        )
    return VerdictTerms(guess_rate=config.guess_rate, looks=held.looks, runs=max(config.runs or 1, held.runs))


def _whole(looks: int | str | None) -> int | None:
    return looks if isinstance(looks, int) else None
