"""The small store with verdicts and a recommendation, as an audit with ``oversharp ship`` leaves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oversharp.diagnostics.verdict.recommendation import BandedChange, Guarantee, Recommendation, ShippingStep
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.reports.context import Context
from tests.reports.parts import family, with_series

#: A step of GRPO, with the changes of the small store: pass@1 from .25, pass@4 from .8.
CHANGES = {
    ("grpo", 10): (0.1, -0.05),
    ("grpo", 30): (0.25, -0.2),
    ("iac", 20): (0.15, -0.01),
    ("iac", 30): (0.2, -0.01),
}
BASE = ShippingStep(series="grpo", step=0, checkpoint="checkpoint-0", is_base=True, role="candidate", pass_at_1=0.25)
GUARANTEE = Guarantee(
    gain=0.05, loss=0.1, k=4, base_pass_at_1=0.25, pass_at_1=0.4, over="all k", n_units=12, units="problems"
)


def shipping_step(series: str, step: int, role: str, **changes: object) -> ShippingStep:
    """A checkpoint as something to ship, ±3 points around its changes."""
    first, worst = CHANGES[family(series), step]
    one = ShippingStep(
        series=series, step=step, checkpoint=f"checkpoint-{step}", is_base=False, role=role,  # type: ignore[arg-type]
        pass_at_1=0.25 + first, first=BandedChange(k=1, change=first, low=first - 0.03, high=first + 0.03),
        worst=BandedChange(k=4, change=worst, low=worst - 0.03, high=worst + 0.03),
    )  # fmt: skip
    return replace(one, **changes)  # type: ignore[arg-type]


def judged(context: Context, recommend: Callable[[ShippingStep], ShippingStep] = lambda one: one) -> Context:
    """All series judged; step 20 of IAC is recommended, or what ``recommend`` makes of it."""
    chosen = recommend(shipping_step("iac", 20, "recommended"))
    names = tuple(one.name for one in context.series)
    of = " of iac" if len(names) > 1 else ""
    said = Recommendation(
        series=names, recommended=chosen, guarantee=GUARANTEE, ks=(1, 4), n_problems=12, n_choosing=12,
        sentence=f"Ship checkpoint-{chosen.step}{of}: pass@1 25.0 % → 40.0 %; up by at least 5.0 points.",
    )  # fmt: skip
    for place, name in enumerate(names):
        out = [shipping_step(name, step, "out") for of, step in CHANGES if of == family(name)]
        steps = (BASE, *out) if family(name) == "grpo" else (chosen if name == "iac" else out[0], *out[1:])
        label = "over_sharpened" if family(name) == "grpo" else "inconclusive"
        verdict = Verdict(
            series=name, label=label, sentence=f"{name} was judged.", k_most=4, window=(20, 30),
            shipping=replace(said, steps=steps),
        )  # fmt: skip
        context = with_series(context, place, verdict=verdict)
    return context
