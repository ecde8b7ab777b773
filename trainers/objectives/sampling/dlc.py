"""DLC: samples rollouts from the policy minus a memory network, which is trained on earlier samples.

    y_t ~ softmax(f_policy - mu * f_memory)         memory: cross-entropy on the samples, one step after each update

Frequently sampled tokens have a large memory logit and are sampled less. If the memory equals the policy, rollouts are
from softmax((1 - mu) * f), a flatter distribution.

Rollouts come from a distribution other than the policy. Without ``importance``, they are treated as samples of the
policy. The benefit in the toy experiments of [A] depends on ignoring this difference: with exact weights it vanishes.

DLC flattens the distribution of every token of a language model, including the end token. With mu = .1 and without
weights, a chat model of 135 million parameters stopped ending its responses within 48 steps. With
``iac+dlc+importance`` it did not (``docs/findings.md``).

Source: *When Sharpening Becomes Collapse* [A] (arXiv 2601.15609), section 3.2. The full method of [A] is ``iac+dlc``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from oversharp.trainers.objectives.contract import Decoding, check_range


@dataclass(frozen=True, kw_only=True)
class Dlc(Decoding):
    """Sampling from the policy minus a memory network.

    ``mu`` is the weight of the memory, 0 or more. ``memory`` is ``copy`` (a copy of the first policy), or the folder or
    hub name of a smaller model with the same tokenizer. That name must not contain ``,`` or ``+``. ``learning_rate``
    and ``optimizer`` are those of the memory. The learning rate defaults to the policy's. ``warm_start_steps`` is the
    number of steps that train the memory on the policy's samples before the first rollout.

    >>> import torch
    >>> f_policy, f_memory = torch.tensor([2.0, 0.0, 0.0]), torch.tensor([4.0, 0.0, 0.0])
    >>> (f_policy - Dlc().mu * f_memory).softmax(dim=0)  # the mode that was sampled too often is as likely as others
    tensor([0.3333, 0.3333, 0.3333])
    """

    title: ClassVar[str] = "Distribution-Level Calibration"
    source: ClassVar[str] = "arXiv 2601.15609, section 3.2"

    mu: float = 0.5
    memory: str = "copy"
    learning_rate: float | None = None
    optimizer: Literal["adamw", "sgd"] = "adamw"
    warm_start_steps: int = 0

    def __post_init__(self) -> None:
        check_range(0, mu=self.mu, warm_start_steps=self.warm_start_steps)
        if not self.memory:
            raise ValueError("memory: must be copy, or the folder of a model")
        if self.learning_rate is not None and not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate {self.learning_rate}: must be above 0")


PART = Dlc
