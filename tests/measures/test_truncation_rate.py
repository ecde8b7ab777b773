from diagnostics.measures.truncation_rate import MEASURE


def test_the_share_of_samples_without_the_greedy_one(world):
    bad, good = "length", "stop"
    marks = {"base": [bad, good, good, good], "late": [bad, bad, bad, good], "twin": [good] * 4}
    samples = [
        {"checkpoint": checkpoint, "sample_index": i, "correct": False, "finish_reason": mark}
        for checkpoint, row in marks.items()
        for i, mark in enumerate(row)
    ]
    samples.append({"checkpoint": "base", "greedy": True, "correct": False, "finish_reason": "length"})
    rows = world(samples, n=4).sql_rows(MEASURE)
    assert [(row["checkpoint_id"], row["value"], row["n"]) for row in rows] == [
        ("base", 0.25, 4),
        ("late", 0.75, 4),
        ("twin", 0.0, 4),
    ]


def test_samples_beyond_the_audits_n_do_not_count(world):
    samples = [{"sample_index": i, "correct": False, "finish_reason": "length" if i >= 2 else "stop"} for i in range(4)]
    assert world(samples, n=2).values(MEASURE) == {("base", "all"): 0.0}


def test_samples_that_do_not_tell_why_they_ended_do_not_count(world):
    told = ["length", "stop", None, None]
    samples = [{"sample_index": i, "finish_reason": reason} for i, reason in enumerate(told)]
    samples += [{"checkpoint": "late", "sample_index": i, "finish_reason": None} for i in range(4)]
    rows = world(samples, n=4).sql_rows(MEASURE)
    assert [(row["checkpoint_id"], row["value"], row["n"]) for row in rows] == [("base", 0.5, 2), ("late", None, 0)]
