"""Nearly equal signatures are one way, by one threshold, in any order."""

from __future__ import annotations

import pytest

from oversharp.diagnostics.ways.contract import Signature
from oversharp.diagnostics.ways.joining import MOST_CLUSTERED, name_ways, similarities


def signature(steps: str, parts: str = "", strategy: str = "arithmetic") -> Signature:
    return Signature(strategy=strategy, steps=tuple(steps.split()), parts=tuple(parts.split()), written=steps + parts)


@pytest.mark.parametrize(
    ("one", "other", "similarity"),
    [
        (signature("a b c"), signature("a b c"), 1.0),
        (signature("a b c"), signature("a b d"), 0.5),  # 2 of 4
        (signature("a b"), signature("c"), 0.0),
        (signature("a b", "p"), signature("a b"), 1.0),  # a part that the other left out
        (signature("a b", "p"), signature("a b", "q"), 0.5),  # parts in each other's place: 2 of 2 + 2
        (signature("a b p"), signature("a b", "p"), 1.0),  # a step of one, a part of the other
        (signature("a", "p q"), signature("a", "r"), 1 / 3),
    ],
)
def test_similarity_is_what_both_compute_of_what_either_does(
    one: Signature, other: Signature, similarity: float
) -> None:
    assert similarities([one], [other])[0, 0] == pytest.approx(similarity)
    assert similarities([other], [one])[0, 0] == pytest.approx(similarity)


def test_a_way_is_named_after_its_most_frequent_signature_whatever_the_order() -> None:
    counts = {signature("a b c"): 2, signature("a b c d"): 5, signature("x y"): 3}
    named = name_ways(counts, joined_from=0.7)
    assert [named[one] for one in counts] == ["arithmetic: a b c d", "arithmetic: a b c d", "arithmetic: x y"]
    assert name_ways(dict(reversed(counts.items())), joined_from=0.7) == named


def test_two_strategies_are_never_one_way() -> None:
    named = name_ways({signature("a b"): 1, signature("a b", strategy="code"): 1}, joined_from=0.5)
    assert sorted(named.values()) == ["arithmetic: a b", "code: a b"]


def test_unknown_signatures_have_no_way() -> None:
    assert name_ways({Signature(why="nothing was read"): 4}, joined_from=0.5) == {}


def test_rare_signatures_beyond_the_clustered_ones_go_to_the_nearest_way() -> None:
    frequent = {signature(f"a{i} b{i} c{i} d{i}"): 9 for i in range(MOST_CLUSTERED)}
    near, far = signature("a7 b7 c7 d7 e"), signature("z")
    named = name_ways({**frequent, near: 1, far: 1}, joined_from=0.7)
    assert (named[near], named[far]) == ("arithmetic: a7 b7 c7 d7", "arithmetic: z")


def test_long_names_that_begin_alike_stay_apart() -> None:
    shared = " ".join(f"step{i:03}" for i in range(30))
    named = name_ways({signature(f"{shared} y1 y2 y3"): 1, signature(f"{shared} z1 z2 z3"): 1}, joined_from=0.99)
    assert len(set(named.values())) == 2
