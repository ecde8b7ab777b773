"""The papers' softmax worlds: rewards of the labels, and the initial policy.

Every policy is linear: logit_k = sum over d of weight_kd * feature_d. A tabular policy has one feature that is 1, so
its weights are the logits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers.seeds import stream_seed

Similarity = Literal["high", "mid", "low"]

CAT, PERSIAN, DOG, SIAMESE = range(4)
PERSIAN_FEATURES = (0.75, 0.5, 0.25, 0.1)
#: Features of the held-out query. The more it shares with Persian's first feature, the more similar it is.
SIAMESE_FEATURES = MappingProxyType(
    {"high": (0.25, 0.5, 0.75, 0.1), "mid": (0.1, 0.5, 0.9, 0.1), "low": (0.0, 0.5, 1.0, 0.1)}
)


@dataclass(frozen=True, kw_only=True)
class World:
    """One query with labels and rewards, and optionally a held-out query that is never trained on.

    Attributes
    ----------
    name
        Name of the world in results.
    labels
        Names of the K labels (actions, modes).
    reward_K
        Reward of each label. A label is correct if its reward is above 0.
    feature_D
        Features of the query that is trained on.
    initial_logit_K
        Logits of that query at step 0. The initial weights are the smallest (in L2) that give them.
    held_out_feature_D
        Features of the held-out query, or None.
    held_out_label
        Position of the label that is right there, or None.
    """

    name: str
    labels: tuple[str, ...]
    reward_K: tuple[float, ...]
    feature_D: tuple[float, ...]
    initial_logit_K: tuple[float, ...]
    held_out_feature_D: tuple[float, ...] | None = None
    held_out_label: int | None = None

    def __post_init__(self) -> None:
        n_labels = len(self.labels)
        if n_labels < 2:
            raise ConfigError(f"world {self.name!r}: {n_labels} labels; a policy chooses among at least 2")
        for name, values in (("reward_K", self.reward_K), ("initial_logit_K", self.initial_logit_K)):
            if len(values) != n_labels:
                raise ConfigError(f"world {self.name!r}: {name} has {len(values)} values for {n_labels} labels")
            if not all(map(math.isfinite, values)):
                raise ConfigError(f"world {self.name!r}: {name} must be finite")
        if not any(self.feature_D):
            raise ConfigError(f"world {self.name!r}: feature_D is all zero; nothing could be learned")
        if (self.held_out_feature_D is None) != (self.held_out_label is None):
            raise ConfigError(f"world {self.name!r}: give both held_out_feature_D and held_out_label, or neither")
        if self.held_out_feature_D is not None and len(self.held_out_feature_D) != len(self.feature_D):
            raise ConfigError(f"world {self.name!r}: the held-out query needs {len(self.feature_D)} features")

    @property
    def correct_labels(self) -> tuple[int, ...]:
        """Positions of the labels whose reward is above 0."""
        return tuple(label for label, reward in enumerate(self.reward_K) if reward > 0)


def cat_world(siamese: Similarity | tuple[float, float, float, float] = "high") -> World:
    """Persian images, for which Cat and Persian are both right. Siamese images are held out.

    Linear softmax from weights 0 over the labels Cat, Persian, Dog, Siamese. ``siamese`` is one of the three
    similarities or the held-out features. Source: [A] (arXiv 2601.15609), 2.4.

    >>> cat_world("low").held_out_feature_D
    (0.0, 0.5, 1.0, 0.1)
    >>> [cat_world().labels[label] for label in cat_world().correct_labels]
    ['Cat', 'Persian']
    """
    if isinstance(siamese, str):
        if siamese not in SIAMESE_FEATURES:
            raise ConfigError(f"siamese {siamese!r}: choose from {', '.join(SIAMESE_FEATURES)}, or give 4 features")
        name, held_out_D = f"cat ({siamese} similarity)", SIAMESE_FEATURES[siamese]
    else:
        name, held_out_D = "cat (own similarity)", siamese
    return World(
        name=name,
        labels=("Cat", "Persian", "Dog", "Siamese"),
        reward_K=(1.0, 1.0, 0.0, 0.0),
        feature_D=PERSIAN_FEATURES,
        initial_logit_K=(0.0,) * 4,
        held_out_feature_D=held_out_D,
        held_out_label=SIAMESE,
    )


def tabular_world(
    initial_prob_K: tuple[float, ...] = (0.5, 0.05, 0.45), reward_K: tuple[float, ...] = (1.0, 2.0, 0.0)
) -> World:
    """A softmax over free logits. The defaults are the three actions of [B] (arXiv 2510.04028), 3.2.

    a1 is explored and good, a2 unexplored and better, a3 explored and bad. Pass four values for [B] Fig 7.

    >>> tabular_world().labels
    ('a1', 'a2', 'a3')
    """
    if not all(prob > 0 for prob in initial_prob_K) or not math.isclose(sum(initial_prob_K), 1.0, abs_tol=1e-9):
        raise ConfigError(f"initial_prob_K {initial_prob_K}: must be above 0 and sum to 1")
    return World(
        name=f"tabular ({len(initial_prob_K)} actions)",
        labels=tuple(f"a{position}" for position in range(1, len(initial_prob_K) + 1)),
        reward_K=reward_K,
        feature_D=(1.0,),
        initial_logit_K=tuple(math.log(prob) for prob in initial_prob_K),
    )


def bandit_world(
    *,
    peaks: tuple[tuple[int, float], ...] = ((21, 0.6), (8, 0.2), (11, 0.1)),
    rewarded: tuple[int, ...] = (8, 11),
    punished: tuple[int, ...] = (),
    n_labels: int = 50,
    n_features: int = 5,
    world_seed: int = 0,
) -> World:
    """One context and fifty labels, with an initial distribution with or without peaks.

    Each of ``peaks`` is (label, initial probability). The rest of the probability is spread over the other labels by a
    softmax of N(0, 0.1²) logits. ``peaks=()`` is the nearly uniform case. ``rewarded`` labels earn 1, ``punished`` ones
    -1. The query's features are N(0, 1), both drawn from ``world_seed``. With plain SGD they matter only as the factor
    ||x||² of the learning rate. Source: [C] App D.1, which does not state the height of the peaks. The defaults are
    ours.

    >>> world = bandit_world(punished=(11,), rewarded=())
    >>> world.reward_K[11], sum(world.reward_K)
    (-1.0, -1.0)
    """
    outside = sorted({label for label in (*rewarded, *punished, *dict(peaks)) if not 0 <= label < n_labels})
    if outside:
        raise ConfigError(f"labels {outside}: must lie in [0, {n_labels})")
    if set(rewarded) & set(punished):
        raise ConfigError(f"labels {sorted(set(rewarded) & set(punished))}: both rewarded and punished")
    left = 1.0 - sum(prob for _, prob in peaks)
    if len(dict(peaks)) != len(peaks) or any(prob <= 0 for _, prob in peaks) or left <= 0:
        raise ConfigError(f"peaks {peaks}: distinct labels with probabilities above 0 that leave some mass")
    generator = np.random.default_rng(stream_seed(world_seed, "toy bandit"))
    feature_D = generator.standard_normal(n_features)
    mass_K = np.exp(0.1 * generator.standard_normal(n_labels))
    mass_K[list(dict(peaks))] = 0.0
    prob_K = left * mass_K / mass_K.sum()
    for label, prob in peaks:
        prob_K[label] = prob
    return World(
        name="bandit (peaky)" if peaks else "bandit (uniform)",
        labels=tuple(f"y{label}" for label in range(n_labels)),
        reward_K=tuple(float(label in rewarded) - float(label in punished) for label in range(n_labels)),
        feature_D=tuple(feature_D.tolist()),
        initial_logit_K=tuple(np.log(prob_K).tolist()),
    )
