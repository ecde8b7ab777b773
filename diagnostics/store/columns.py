"""What a documented relation and its columns are, the columns that mean the same in all of them, and the counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

#: Of a column that is a name, a text or a flag.
NO_UNIT = ""


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What a column holds, and in which unit; a text without a full stop."""

    text: str
    unit: str = NO_UNIT


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A view or table that users may rely on: one row of it, and the columns whose meaning is its own."""

    name: str
    row: str
    columns: Mapping[str, Meaning] = field(default_factory=dict)


def means(text: str, unit: str = NO_UNIT) -> Meaning:
    """A meaning in one line.

    >>> means("length of the response", "tokens")
    Meaning(text='length of the response', unit='tokens')
    """
    return Meaning(text=text, unit=unit)


#: Columns that mean the same wherever they stand.
COMMON: Mapping[str, Meaning] = MappingProxyType(
    {
        "series": means("name of the series"),
        "checkpoint": means("label of the checkpoint: its directory's name"),
        "step": means("optimizer step of the checkpoint", "steps"),
        "is_base": means("whether it is the checkpoint that the others are compared with"),
        "checkpoint_id": means("hash of the weights: equal weights are one checkpoint"),
        "audit_id": means("hash of what the audit compares"),
        "settings_id": means("hash of the sampling settings"),
        "task": means("problem set that the problem is from"),
        "problem_id": means("hash of the problem's content"),
        "response_id": means("hash of the response text: equal texts share grade and log-probability"),
        "greedy": means("whether it is the greedy response; every other one was drawn"),
        "sample_index": means("0, 1, … among the samples of this problem and checkpoint; 0 for the greedy one"),
        "text": means("the response"),
        "n_tokens": means("length of the response, its end token included; NULL if not known", "tokens"),
        "answer": means("canonical final answer; NA where none was found"),
        "mode": means("canonical form of the whole solution; NULL if it has none"),
        "correct": means("whether the response was graded and its reward is full"),
        "logp_sum_raw": means(
            "its log-probability as the sampler says, at temperature 1 without truncation; NULL if not known", "nats"
        ),
        "logp_sum": means("log-probability of the response, teacher-forced at temperature 1", "nats"),
        "entropy_sum": means("entropy of the next-token distributions, summed over the response", "nats"),
        "token_logps": means("log-probability of each token of the response", "nats"),
        "token_entropies": means("entropy of the distribution of each token", "nats"),
        "n": means("samples, without the greedy one", "samples"),
        "n_correct": means("correct ones among them", "samples"),
        "n_cut": means(
            "not correct, and cut off before a readable answer stood in a box; NULL where a sample does not tell",
            "samples",
        ),
        "n_unread": means(
            "not correct, not cut off, and no answer could be read; NULL where one of the samples does not tell",
            "samples",
        ),
        "n_planned": means("samples that the audit wants here; fewer are there while it runs", "samples"),
    }
)

#: Samples of problems, counted: views and their columns, from what pass@k rests on to what a second verifier says.
COUNT_RELATIONS: tuple[Relation, ...] = (
    Relation(
        name="problem_counts",
        row="a problem at a checkpoint, with as many samples of it at every checkpoint: what a comparison needs",
    ),
    Relation(
        name="sampled_counts",
        row="a problem at a checkpoint, with all its samples (the base has more): what pass@k rests on",
    ),
    Relation(name="read_counts", row="the same, with what became of the samples that are not correct"),
    Relation(
        name="control_counts",
        row="a problem at a temperature other than the audit's own: of the base sharper, of a checkpoint hotter",
        columns={
            "temperature": means("what it was drawn at", "temperature"),
            "own_temperature": means("what the audit's own samples were drawn at", "temperature"),
            "n_planned": means("samples of this problem that the audit wants at this temperature", "samples"),
        },
    ),
    Relation(
        name="second_gradings",
        row="a series that `oversharp regrade` graded again",
        columns={
            "second_series": means("the series with the second grades; of several verifiers, of the one asked last"),
            "verifier": means("the second verifier"),
        },
    ),
    Relation(
        name="second_counts",
        row="a problem at a checkpoint and temperature, as the verifier of second_gradings grades its samples",
        columns={
            "temperature": means("what it was drawn at; NULL where that is the audit's own", "temperature"),
            "verifier": means("the second verifier"),
            "n_planned": means("samples of this problem that the audit wants at this temperature", "samples"),
        },
    ),
)
