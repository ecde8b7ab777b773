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
#: loses 1 point of pass@128 down to T = .45 and 19 points down to .15. A coarser grid would end before the runs do.
COLDER = (0.6, 0.3, 0.15)
HOTTER = (1.2, 1.5)
#: Samples of the controls as a share of the audit's own, where the user did not ask for controls.
MOST_OF_THE_AUDIT = 0.25
#: The base's part of them: every checkpoint is compared with its frontier.
OF_THE_BASE = 0.6
#: Checkpoints that are sampled at higher temperatures: the last, and the one to ship.
DRAWN_HOTTER = 2
#: Fewest samples per problem that tell pass@k from noise.
LEAST_SAMPLES = 16


@dataclass(frozen=True, kw_only=True)
class ControlRequest:
    """The user's settings of controls; None for each that is not given.

    ``wanted`` draws them whatever they cost, or never; ``n`` samples per problem at each temperature, ``lower`` ones of
    the base and ``higher`` ones of checkpoints.
    """

    wanted: bool | None = None
    n: int | None = None
    lower: tuple[float, ...] | None = None
    higher: tuple[float, ...] | None = None

    @property
    def named(self) -> list[str]:
        """The flags that say how to draw controls, of those that are given."""
        given = {"--control-n": self.n, "--control-temperatures": self.lower, "--hot-temperatures": self.higher}
        return [flag for flag, value in given.items() if value is not None]

    @property
    def is_explicit(self) -> bool:
        """Whether the user wants controls whatever they cost."""
        return self.wanted is True or bool(self.named)


@dataclass(frozen=True, kw_only=True)
class Controls:
    """``n`` samples per problem of the base under each of ``colder``, ``n_hot`` of others under each of ``hotter``."""

    n: int
    n_hot: int
    colder: tuple[SamplingSettings, ...]
    hotter: tuple[SamplingSettings, ...]


def plan_controls(
    request: ControlRequest, settings: SamplingSettings, *, n: int, n_base: int, n_checkpoints: int
) -> tuple[Controls | None, str]:
    """Return the controls, or None, and a line on their cost, empty without controls.

    ``n`` is the audit's own number of samples per problem from each of ``n_checkpoints``, ``n_base`` that of the base.
    """
    if request.wanted is False:
        return None, ""
    own = settings.temperature
    colder = request.lower or tuple(round(own * share, 4) for share in COLDER)
    hotter = request.higher or tuple(round(own * share, 4) for share in HOTTER)
    audit = n_base + (n_checkpoints - 1) * n
    n_hotter = DRAWN_HOTTER * len(hotter)
    if request.is_explicit:
        n_cold = n_hot = request.n or n
    else:
        n_cold = min(n, int(OF_THE_BASE * MOST_OF_THE_AUDIT * audit) // len(colder))
        n_hot = min(n, int((1.0 - OF_THE_BASE) * MOST_OF_THE_AUDIT * audit) // n_hotter)
        if n_cold < LEAST_SAMPLES:
            return None, ""  # the measures name --controls as what they lack
    more = f"at most {100 * (n_cold * len(colder) + n_hot * n_hotter) / audit:.0f} % more samples"
    says = (
        f"controls: {n_cold} samples per problem of the base at each of T = {_listed(colder)}; {n_hot} of the last "
        f"checkpoint and of the one to ship at each of T = {_listed(hotter)}: {more}"
    )
    controls = Controls(
        n=n_cold,
        n_hot=n_hot,
        colder=tuple(control_settings(settings, one) for one in colder),
        hotter=tuple(control_settings(settings, one) for one in hotter),
    )
    return controls, says + _truncated(settings)


def add_stored_controls(
    controls: Controls | None, says: str, settings: SamplingSettings, held: Mapping[str, tuple[float, int]]
) -> tuple[Controls | None, str]:
    """Return the controls with those that cost nothing: lower temperatures of this base that the store has already.

    ``held`` maps settings id to (temperature, samples per problem) in the store.
    """
    colder = {one.settings_id: one for t, _ in held.values() if (one := control_settings(settings, t))}
    free = [
        (one, held[name][1]) for name, one in colder.items() if name in held and one.temperature < settings.temperature
    ]
    if controls is not None:
        known = {one.settings_id: n for one, n in free}
        least = min(known.get(one.settings_id, 0) for one in controls.colder)
        if least <= controls.n:
            return controls, says
        return replace(controls, n=least), f"{says}; {least} of the base at each are in the store and are used"
    if not free:
        return None, says
    free.sort(key=lambda one: -one[0].temperature)
    n = min(n for _, n in free)
    listed = _listed([one.temperature for one, _ in free])
    line = f"controls: {n} samples per problem of the base at each of T = {listed} are in the store and are used"
    return Controls(n=n, n_hot=0, colder=tuple(one for one, _ in free), hotter=()), line


def _truncated(settings: SamplingSettings) -> str:
    """Return a remark on top-p and top-k, which truncate after the temperature is applied; empty without them."""
    limits = [f"top-p {settings.top_p:g}"] if settings.top_p < 1.0 else []
    limits += [f"top-k {settings.top_k}"] if settings.top_k else []
    return f", with {' and '.join(limits)} as in the audit's own samples" if limits else ""


def control_settings(settings: SamplingSettings, temperature: float) -> SamplingSettings:
    """Return the audit's own settings at another temperature, with a separate seed."""
    seed = int(content_hash("control", settings.seed, temperature), 16) % 2**31
    return replace(settings, temperature=temperature, seed=seed)


def require_control_temperatures(request: ControlRequest, own: float) -> None:
    """Raise ``ConfigError`` for temperatures that are no controls of an audit at the temperature ``own``."""
    _require("--control-temperatures", request.lower or (), above=0.0, below=own)
    _require("--hot-temperatures", request.higher or (), above=own, below=float("inf"))


def _require(flag: str, given: Sequence[float], *, above: float, below: float) -> None:
    for one in given:
        if not above < one < below:
            side = "below" if below < float("inf") else "above"
            own = below if below < float("inf") else above
            raise ConfigError(f"{flag} {one:g}: must be above 0 and {side} the audit's own temperature, {own:g}")
    if len(set(given)) < len(given):
        raise ConfigError(f"{flag} {_listed(given)}: has a temperature twice")


def _listed(given: Sequence[float]) -> str:
    return ", ".join(f"{one:g}" for one in given)
