"""Exact success rates on tasks with listed responses, and the frontier of a base at lower temperatures.

Responses are scored with transformers, without the audit's code, in double precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from oversharp.diagnostics.models.load import quiet_transformers
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.statistics.frontier import AgainstFrontier, FrontierPoints, frontier_curve

#: Fine enough that interpolation is exact to a tenth of a point.
FINE = (1.0, 0.9, 0.8, 0.7, 0.6, 0.55, 0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.175, 0.15, 0.125, 0.1)
SCORED_AT_ONCE = 1024
#: Largest rounding error of pass@k in double precision.
LEAST = 1e-9

Rates = Float[np.ndarray, " problem"]


class ExactTask:
    """Problems with all of their correct responses as tokens.

    Padding is on the right, which causal attention ignores.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], modes: Sequence[Sequence[str]]
    ) -> None:
        end = tokenizer.eos_token_id
        rows = [
            (list(tokenizer(one.prompt)["input_ids"]), [*tokenizer(mode)["input_ids"], end])
            for one, own in zip(problems, modes, strict=True)
            for mode in own
        ]
        width = max(len(prompt) + len(response) for prompt, response in rows)
        self.problem_M = np.repeat(np.arange(len(problems)), [len(own) for own in modes])
        self.n_problems = len(problems)
        self.ids_MT = torch.tensor(
            [prompt + response + [0] * (width - len(prompt) - len(response)) for prompt, response in rows]
        )
        place_T = torch.arange(width - 1)  # position of the input token, which predicts the next one
        first_M1 = torch.tensor([[len(prompt) - 1] for prompt, _ in rows])
        after_M1 = torch.tensor([[len(prompt) + len(response) - 1] for prompt, response in rows])
        self.scored_MT = (place_T >= first_M1) & (place_T < after_M1)

    def rates(self, model: PreTrainedModel, temperatures: Sequence[float]) -> list[Rates]:
        """Return, per temperature, the summed probability of every problem's correct responses."""
        logp_TM: list[list[np.ndarray]] = [[] for _ in temperatures]
        with torch.inference_mode():
            parts = zip(self.ids_MT.split(SCORED_AT_ONCE), self.scored_MT.split(SCORED_AT_ONCE), strict=True)
            for ids_BT, scored_BT in parts:
                logits = model(ids_BT).logits[:, :-1].double()
                target = ids_BT[:, 1:, None]
                for place, temperature in enumerate(temperatures):
                    logp_BT = torch.log_softmax(logits / temperature, dim=-1).gather(2, target)[..., 0]
                    logp_TM[place].append((logp_BT * scored_BT).sum(dim=1).numpy())
        return [
            np.bincount(self.problem_M, np.exp(np.concatenate(parts)), self.n_problems).clip(0.0, 1.0)
            for parts in logp_TM
        ]


def tokenizer_of(path: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path)
    return tokenizer


def load(path: Path) -> PreTrainedModel:
    """Load a checkpoint in float32."""
    with quiet_transformers():
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def mixed(base: PreTrainedModel, late: PreTrainedModel, share: float) -> PreTrainedModel:
    """Return a new model whose weights are ``share`` of the way from the first to the second."""
    start, end = base.state_dict(), late.state_dict()
    made = type(base)(base.config).eval()
    made.load_state_dict({name: torch.lerp(start[name], end[name], share) for name in start})
    return made


def pass_at(rate_P: Rates, k: int) -> float:
    """Return pass@k over problems with known success rates.

    >>> pass_at(np.array([0.5, 0.0]), 2)
    0.375
    """
    return float((1.0 - (1.0 - rate_P) ** k).mean())


@dataclass(frozen=True, kw_only=True)
class ExactFrontier:
    """pass@1 (ascending) and pass@``k`` (descending) of a base at its own and at lower temperatures."""

    k: int
    x_R: Float[np.ndarray, " place"]
    y_R: Float[np.ndarray, " place"]

    @classmethod
    def of(cls, fine: Mapping[float, Rates], k: int) -> ExactFrontier:
        """Interpolate between the exact rates at these temperatures, in the same way as ``frontier_gain``."""
        points = FrontierPoints(
            sharpness_S=1.0 - np.array(list(fine)),
            x_SP=np.array([[pass_at(rate_P, 1)] for rate_P in fine.values()]),
            y_SP=np.array([[pass_at(rate_P, k)] for rate_P in fine.values()]),
            limit_P=None,
        )
        x_R, y_R = frontier_curve(points)
        return cls(k=k, x_R=x_R, y_R=y_R)

    def gain(self, x: float, y: float) -> float | None:
        """Return pass@1 minus the frontier's at equal pass@k; None beyond its ends.

        >>> frontier = ExactFrontier(k=8, x_R=np.array([0.2, 0.4]), y_R=np.array([0.9, 0.7]))
        >>> round(frontier.gain(0.5, 0.8), 9), frontier.gain(0.5, 0.95), frontier.gain(0.5, 0.6)
        (0.2, None, None)
        """
        if not self.y_R[-1] <= y <= self.y_R[0] + LEAST:
            return None
        return x - float(np.interp(y, self.y_R[::-1], self.x_R[::-1]))

    def loss(self, x: float, y: float) -> float | None:
        """Return pass@k minus the frontier's at equal pass@1; None beyond its ends.

        >>> frontier = ExactFrontier(k=8, x_R=np.array([0.2, 0.4]), y_R=np.array([0.9, 0.7]))
        >>> round(frontier.loss(0.3, 0.75), 9), frontier.loss(0.5, 0.75)
        (-0.05, None)
        """
        if not self.x_R[0] <= x <= self.x_R[-1]:
            return None
        return y - float(np.interp(x, self.x_R, self.y_R))

    def share(self, x: float, y: float) -> float | None:
        """Return the share of the rise of pass@1 that the frontier has at equal pass@k.

        None beyond its ends, and without a rise.

        >>> frontier = ExactFrontier(k=8, x_R=np.array([0.2, 0.4]), y_R=np.array([0.9, 0.7]))
        >>> round(frontier.share(0.6, 0.8), 9), frontier.share(0.2, 0.8)
        (0.25, None)
        """
        gain = self.gain(x, y)
        return None if gain is None or x <= self.x_R[0] else 1.0 - gain / (x - float(self.x_R[0]))

    def matched(self, x: float, y: float) -> dict[str, float | None]:
        """Return gain, loss and share, by the name of the measure's part."""
        return {"gain": self.gain(x, y), "loss": self.loss(x, y), "share": self.share(x, y)}


#: Parts of the measures ``frontier_gain``, ``frontier_loss`` and ``sharpening_share``.
PARTS = ("gain", "loss", "share")


class Coverage:
    """Count how often the intervals of one checkpoint contain the exact gain, loss and share."""

    def __init__(self, exact: Mapping[str, float | None]) -> None:
        self.exact = exact
        self.given = dict.fromkeys(PARTS, 0)
        self.held = dict.fromkeys(PARTS, 0)

    def count(self, found: AgainstFrontier) -> None:
        """Add one audit.

        It has no share if pass@1 did not rise significantly.
        """
        for part in PARTS:
            right, said = self.exact[part], getattr(found, part)
            if right is None or (part == "share" and said.low is None and said.high is None):
                continue
            self.given[part] += 1
            self.held[part] += (said.low is None or said.low <= right) and (said.high is None or right <= said.high)

    def shares(self) -> dict[str, float | None]:
        """Return the coverage of every part.

        None without an interval, or without an exact value.
        """
        return {part: self.held[part] / self.given[part] if self.given[part] else None for part in PARTS}
