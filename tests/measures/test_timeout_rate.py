from diagnostics.measures.timeout_rate import MEASURE


def test_timeouts_and_verifier_errors_are_told_apart(world):
    states = {"base": ["ok", "timeout", "parse_fail", "ok"], "late": ["error", "timeout", "timeout", "ok"]}
    samples = [
        {"checkpoint": checkpoint, "sample_index": i, "correct": False, "state": state}
        for checkpoint, row in states.items()
        for i, state in enumerate(row)
    ]
    samples.append({"greedy": True, "correct": False, "state": "timeout"})
    assert world(samples, n=4).values(MEASURE) == {
        ("base", "all"): 0.25,
        ("base", "error"): 0.0,
        ("late", "all"): 0.5,
        ("late", "error"): 0.25,
    }
