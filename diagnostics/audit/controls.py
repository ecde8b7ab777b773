"""Controls: the base sampled at lower temperatures, and checkpoints at higher ones.

Sampling the base at a lower temperature also raises pass@1 and lowers pass@k, without any training. A comparison with
these samples shows what a run gained beyond that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import SamplingSettings, content_hash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Factors of the audit's temperature for the base. pass@k falls steeply below about T = .3: the demo's base loses 1
#: point of pass@128 down to T = .45 and 19 points down to .15. The lowest factor is .15 because trained runs may lose
#: as much.
LOWER = (0.6, 0.3, 0.15)
HIGHER = (1.2, 1.5)
#: By default, controls are at most this share of the audit's own samples.
MOST_OF_THE_AUDIT = 0.25
#: Share of the controls that are samples of the base. It is above half because every checkpoint is compared with the
#: base's frontier.
OF_THE_BASE = 0.6
#: Number of checkpoints that are sampled at higher temperatures: the last one and the one to ship.
SAMPLED_HIGHER = 2
#: Smallest number of samples per problem for a useful estimate of pass@k.
LEAST_SAMPLES = 16


@dataclass(frozen=True, kw_only=True)
class ControlRequest:
    """The user's settings of controls. A setting that the user did not give is None.

    ``wanted`` is true to sample controls at any cost, and false to sample none. ``n`` is the number of samples per
    problem at each temperature. ``lower`` has the temperatures of the base, ``higher`` those of checkpoints.
    """

    wanted: bool | None = None
    n: int | None = None
    lower: tuple[float, ...] | None = None
    higher: tuple[float, ...] | None = None

    @property
    def named(self) -> list[str]:
        """Flags of the user that set how to sample controls."""
        given = {"--control-n": self.n, "--control-temperatures": self.lower, "--hot-temperatures": self.higher}
        return [flag for flag, value in given.items() if value is not None]

    @property
    def is_explicit(self) -> bool:
        """Whether the user asked for controls at any cost."""
        return self.wanted is True or bool(self.named)


@dataclass(frozen=True, kw_only=True)
class Controls:
    """Planned controls, with their sampling settings.

    ``n`` is the number of samples per problem of the base at each lower temperature. ``n_higher`` is that of the other
    checkpoints at each higher temperature.
    """

    n: int
    n_higher: int
    lower: tuple[SamplingSettings, ...]
    higher: tuple[SamplingSettings, ...]


def plan_controls(
    request: ControlRequest,
    settings: SamplingSettings,
    *,
    n: int,
    n_base: int,
    n_checkpoints: int,
) -> tuple[Controls | None, str]:
    """Return the planned controls or None, and a line about their cost (empty without any).

    ``n`` is the audit's number of samples per problem from each of ``n_checkpoints``, and ``n_base`` the number from
    the base. With a stopping rule, all these numbers are the largest possible.
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
            return None, ""  # the measures that need controls name --controls in their reason
    share = 100 * (n_lower * len(lower) + n_higher * n_higher_draws) / audit
    note = (
        f"controls: {n_lower} samples per problem of the base at each of T = {_listed(lower)}; {n_higher} of the last "
        f"checkpoint and of the one to ship at each of T = {_listed(higher)}: at most {share:.0f} % more samples"
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
    """Use the controls of this base at lower temperatures that are already in the store.

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
    """Return a note about top-p and top-k, which truncate after the temperature is applied.

    Empty without them.
    """
    limits = [f"top-p {settings.top_p:g}"] if settings.top_p < 1.0 else []
    limits += [f"top-k {settings.top_k}"] if settings.top_k else []
    return f", with {' and '.join(limits)} as in the audit's own samples" if limits else ""


def control_settings(settings: SamplingSettings, temperature: float) -> SamplingSettings:
    """Return the audit's settings at another temperature and with another seed."""
    seed = int(content_hash("control", settings.seed, temperature), 16) % 2**31
    return replace(settings, temperature=temperature, seed=seed)


def require_control_temperatures(request: ControlRequest, own: float) -> None:
    """Raise ``ConfigError`` for control temperatures on the wrong side of the audit's, ``own``."""
    _require("--control-temperatures", request.lower or (), above=0.0, below=own)
    _require("--hot-temperatures", request.higher or (), above=own, below=float("inf"))


def _require(flag: str, given: Sequence[float], *, above: float, below: float) -> None:
    side, own = ("below", below) if below < float("inf") else ("above", above)
    for temperature in given:
        if not above < temperature < below:
            raise ConfigError(f"{flag} {temperature:g}: must be above 0 and {side} the audit's temperature, {own:g}")
    if len(set(given)) < len(given):
        raise ConfigError(f"{flag} {_listed(given)}: contains a temperature twice; remove one")


def _listed(given: Sequence[float]) -> str:
    return ", ".join(f"{temperature:g}" for temperature in given)
