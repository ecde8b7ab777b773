"""Controls: the base sampled at lower temperatures, and checkpoints at higher ones.

Sampling the base at a lower temperature raises pass@1 and lowers pass@k too, without any training. Only a comparison
with it shows what a run gained beyond that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import SamplingSettings, content_hash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Factors of the audit's own temperature. Down to .15 because pass@k falls steeply below about .3: the demo's base
#: loses 1 point of pass@128 down to T = .45 and 19 points down to .15. Trained runs may lose as much.
LOWER = (0.6, 0.3, 0.15)
HIGHER = (1.2, 1.5)
#: Largest number of control samples by default, as a share of the audit's own samples.
MOST_OF_THE_AUDIT = 0.25
#: The base's share of the controls: every checkpoint is compared with its frontier.
OF_THE_BASE = 0.6
#: Checkpoints that are sampled at higher temperatures: the last, and the one to ship.
SAMPLED_HIGHER = 2
#: Least number of samples per problem for a useful estimate of pass@k.
LEAST_SAMPLES = 16


@dataclass(frozen=True, kw_only=True)
class ControlRequest:
    """The user's settings of controls; None for each setting that is not given.

    ``wanted``: draw them at any cost, or never. ``n``: samples per problem at each temperature. ``lower``: temperatures
    for the base. ``higher``: temperatures for checkpoints.
    """

    wanted: bool | None = None
    n: int | None = None
    lower: tuple[float, ...] | None = None
    higher: tuple[float, ...] | None = None

    @property
    def named(self) -> list[str]:
        """The given flags that set how to draw controls."""
        given = {"--control-n": self.n, "--control-temperatures": self.lower, "--hot-temperatures": self.higher}
        return [flag for flag, value in given.items() if value is not None]

    @property
    def is_explicit(self) -> bool:
        """Whether the user asked for controls at any cost."""
        return self.wanted is True or bool(self.named)


@dataclass(frozen=True, kw_only=True)
class Controls:
    """Settings at other temperatures: ``n`` samples per problem of the base, ``n_higher`` of other checkpoints."""

    n: int
    n_higher: int
    lower: tuple[SamplingSettings, ...]
    higher: tuple[SamplingSettings, ...]


def plan_controls(
    request: ControlRequest, settings: SamplingSettings, *, n: int, n_base: int, n_checkpoints: int
) -> tuple[Controls | None, str]:
    """Return the controls, or None, and a line on their cost, empty without controls.

    ``n`` is the audit's number of samples per problem from each of ``n_checkpoints``, ``n_base`` the base's.
    """
    if request.wanted is False:
        return None, ""
    own = settings.temperature
    lower = request.lower or tuple(round(own * share, 4) for share in LOWER)
    higher = request.higher or tuple(round(own * share, 4) for share in HIGHER)
    audit = n_base + (n_checkpoints - 1) * n
    n_higher_draws = SAMPLED_HIGHER * len(higher)
    if request.is_explicit:
        n_lower = n_higher = request.n or n
    else:
        n_lower = min(n, int(OF_THE_BASE * MOST_OF_THE_AUDIT * audit) // len(lower))
        n_higher = min(n, int((1.0 - OF_THE_BASE) * MOST_OF_THE_AUDIT * audit) // n_higher_draws)
        if n_lower < LEAST_SAMPLES:
            return None, ""  # the measures without controls name --controls
    more = f"at most {100 * (n_lower * len(lower) + n_higher * n_higher_draws) / audit:.0f} % more samples"
    note = (
        f"controls: {n_lower} samples per problem of the base at each of T = {_listed(lower)}; {n_higher} of the last "
        f"checkpoint and of the one to ship at each of T = {_listed(higher)}: {more}"
    )
    controls = Controls(
        n=n_lower,
        n_higher=n_higher,
        lower=tuple(control_settings(settings, temperature) for temperature in lower),
        higher=tuple(control_settings(settings, temperature) for temperature in higher),
    )
    return controls, note + _truncation_note(settings)


def add_stored_controls(
    controls: Controls | None, note: str, settings: SamplingSettings, stored: Mapping[str, tuple[float, int]]
) -> tuple[Controls | None, str]:
    """Add the controls of this base at lower temperatures that are in the store already, and cost nothing.

    ``stored`` maps settings id to (temperature, samples per problem).
    """
    lower = sorted({t for t, _ in stored.values() if t < settings.temperature}, reverse=True)
    available = {
        control: stored[control.settings_id][1]
        for control in (control_settings(settings, temperature) for temperature in lower)
        if control.settings_id in stored
    }
    if controls is not None:
        least = min(available.get(control, 0) for control in controls.lower)
        if least <= controls.n:
            return controls, note
        return replace(controls, n=least), f"{note}; {least} of the base at each are in the store and are used"
    if not available:
        return None, note
    n, temperatures = min(available.values()), _listed([control.temperature for control in available])
    note = f"controls: {n} samples per problem of the base at each of T = {temperatures} are in the store and are used"
    return Controls(n=n, n_higher=0, lower=tuple(available), higher=()), note


def _truncation_note(settings: SamplingSettings) -> str:
    """Return a remark on top-p and top-k, which truncate after the temperature is applied; empty without them."""
    limits = [f"top-p {settings.top_p:g}"] if settings.top_p < 1.0 else []
    limits += [f"top-k {settings.top_k}"] if settings.top_k else []
    return f", with {' and '.join(limits)} as in the audit's own samples" if limits else ""


def control_settings(settings: SamplingSettings, temperature: float) -> SamplingSettings:
    """Return the audit's own settings at another temperature, with a separate seed."""
    seed = int(content_hash("control", settings.seed, temperature), 16) % 2**31
    return replace(settings, temperature=temperature, seed=seed)


def require_control_temperatures(request: ControlRequest, own: float) -> None:
    """Raise ``ConfigError`` for control temperatures on the wrong side of ``own``, the audit's temperature."""
    _require("--control-temperatures", request.lower or (), above=0.0, below=own)
    _require("--hot-temperatures", request.higher or (), above=own, below=float("inf"))


def _require(flag: str, given: Sequence[float], *, above: float, below: float) -> None:
    side, own = ("below", below) if below < float("inf") else ("above", above)
    for temperature in given:
        if not above < temperature < below:
            raise ConfigError(f"{flag} {temperature:g}: must be above 0 and {side} the audit's temperature, {own:g}")
    if len(set(given)) < len(given):
        raise ConfigError(f"{flag} {_listed(given)}: has a temperature twice; remove one")


def _listed(given: Sequence[float]) -> str:
    return ", ".join(f"{temperature:g}" for temperature in given)
