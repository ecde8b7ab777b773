from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.measures.examples import tiny_evidence

RETURNS, PRICE = (all_measures()[name] for name in ("temperature_returns", "temperature_price"))
COLUMNS = "checkpoint_id problem_id temperature own_temperature n n_correct"


def evidence_of(hot):
    own = [(c, f"q{i:02}", 8, hits[i % 2]) for c, hits in (("base", (4, 4)), ("late", (8, 0))) for i in range(40)]
    evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", own, n=8)
    drawn = [("late", f"q{i:02}", 1.5, 1.0, 8, hot[i % 2]) for i in range(40)]
    evidence.frames.update(tiny_evidence("control_counts", COLUMNS, drawn, n=8).frames)
    return evidence


def test_a_hotter_draw_gives_back_coverage_and_costs_pass_at_1_by_hand():
    [back], [price] = RETURNS(evidence_of((6, 1))), PRICE(evidence_of((6, 1)))
    assert (back.scope, back.k, back.value) == ("T=1.5", 4, 0.25)  # pass@4 of 1 in 8 is ½, of half the problems
    assert (price.k, price.value) == (1, -0.0625)
    assert back.low > 0
    assert price.low < -0.0625 < price.high


def test_a_hotter_draw_that_lacks_samples_is_unknown():
    evidence = evidence_of((6, 1))
    evidence.frames["control_counts"] = evidence.frames["control_counts"].iloc[1:]
    assert [one.why for one in RETURNS(evidence)] == ["its samples at the higher temperature are incomplete"]
