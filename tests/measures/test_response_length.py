from diagnostics.measures.response_length import MEASURE


def test_lengths_are_given_for_all_and_by_grade(world):
    samples = [
        {"checkpoint": checkpoint, "sample_index": i, "n_tokens": n_tokens, "correct": correct}
        for checkpoint, row in {"base": [(2, True), (4, True), (9, False)], "late": [(8, False), (10, False)]}.items()
        for i, (n_tokens, correct) in enumerate(row)
    ]
    samples.append({"greedy": True, "n_tokens": 1000})
    assert world(samples, n=3).values(MEASURE) == {
        ("base", "all"): 5.0,
        ("base", "correct"): 3.0,
        ("base", "not_correct"): 9.0,
        ("late", "all"): 9.0,
        ("late", "not_correct"): 9.0,
    }
