"""The relations of ways and strategies, for whoever writes SQL on them."""

from __future__ import annotations

from oversharp.diagnostics.store.columns import Relation, means

_OF_COUNTS = {
    "level": means(
        "way, the finer written, or the coarser operations, final (last step) or strategy; each has all samples"
    ),
    "way": means("the class at that level, by name; NULL where it is not known"),
    "why": means("why it is not known; NULL if it is"),
    "first_half": means("whether these are samples of the first half, which chooses the leading way"),
    "n": means("correct samples of that way and half", "samples"),
    "n_planned": means("samples of this problem that the audit wants from every checkpoint", "samples"),
}

WAYS_RELATIONS = (
    Relation(
        name="strategy_counts",
        row="a strategy of a problem at a checkpoint, code or prose: how often it is taken, and how often it is right",
        columns={
            "strategy": means("code where the text matches the audit's strategy pattern, else prose"),
            "share": means("of this problem's samples: the mixture of strategies", "share of samples"),
        },
    ),
    Relation(
        name="way_counts",
        row="a way of solving a problem at a checkpoint, among as many samples at every checkpoint",
        columns=_OF_COUNTS,
    ),
    Relation(
        name="second_way_counts",
        row="the same of what the verifier of second_gradings accepts",
        columns=_OF_COUNTS,
    ),
    Relation(
        name="response_ways",
        row="a correct response whose way was read (table)",
        columns={
            "reader": means("who read it, and its version"),
            "strategy": means("coarsest level: code, algebra, arithmetic, expression, or a reader's own"),
            "operations": means("how many values come out of each operation"),
            "final_step": means("the last operation, with what goes in and out"),
            "way": means("the way that it is one of: strategy and steps of its most frequent signature"),
            "written": means("all of its steps, or the expression as it stands there"),
            "steps": means("what it computes on its way"),
            "parts": means("steps on the way to these, which others leave out"),
            "why": means("why its way is not known; NULL if it is"),
        },
    ),
)
