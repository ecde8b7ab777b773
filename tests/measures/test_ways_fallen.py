import pytest

from oversharp.diagnostics.measures.examples import tiny_ways
from oversharp.diagnostics.measures.modes.ways.losses import ways_fallen

BASE = [("base", f"q{i}", way, True, 16) for i in range(10) for way in "ab"]


def fallen(late):
    return {f.scope: f.value for f in ways_fallen(tiny_ways([*BASE, *late], n=32)) if f.checkpoint_id == "late"}


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        ([("late", f"q{i}", way, True, 16) for i in range(10) for way in "ab"], {"fell": 0.0, "lost": 0.0}),
        ([("late", f"q{i}", "a", True, 32) for i in range(10)], {"fell": 10.0, "lost": 10.0}),
        ([("late", f"q{i}", w, True, n) for i in range(10) for w, n in (("a", 31), ("b", 1))], {"fell": 10, "lost": 0}),
        # 15 of 16 fell by luck as likely as not
        ([("late", f"q{i}", w, True, n) for i in range(10) for w, n in (("a", 17), ("b", 15))], {"fell": 0, "lost": 0}),
        # what could not be read may be the way that is missing
        ([("late", f"q{i}", w, True, 16) for i in range(10) for w in ("a", None)], {"fell": 0.0, "lost": 0.0}),
    ],
)
def test_a_way_falls_where_luck_cannot_explain_it(late, expected):
    assert fallen(late) == expected


def test_a_base_without_a_known_way_has_nothing_to_lose():
    found = ways_fallen(tiny_ways([("base", "q", None, True, 4), ("late", "q", "a", True, 4)]))
    assert {f.why for f in found} == {"no correct sample of the base has a known way"}
