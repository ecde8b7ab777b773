from diagnostics.measures.verifier_disagreement import MEASURE


def test_both_ways_of_disagreeing_are_told_apart(world):
    grades = {
        "base": [(True, True), (False, False), (True, False), (False, True)],
        "late": [(True, False), (True, False), (True, True), (True, False)],
    }
    samples = [
        {"checkpoint": checkpoint, "sample_index": i, "correct": here, "own_correct": own}
        for checkpoint, row in grades.items()
        for i, (here, own) in enumerate(row)
    ]
    samples.append({"greedy": True, "correct": True, "own_correct": False})
    made = world(samples, n=4)
    assert made.values(MEASURE) == {
        ("base", "all"): 0.5,
        ("base", "only here"): 0.25,
        ("base", "only own"): 0.25,
        ("late", "all"): 0.75,
        ("late", "only here"): 0.75,
        ("late", "only own"): 0.0,
    }
    assert {row["n"] for row in made.sql_rows(MEASURE)} == {4}


def test_samples_that_one_verifier_graded_alone_say_nothing(world):
    assert world([{"sample_index": i} for i in range(4)], n=4).sql_rows(MEASURE) == []
    half = [{"sample_index": i, "own_correct": False if i < 2 else None} for i in range(4)]
    assert {row["n"] for row in world(half, n=4).sql_rows(MEASURE)} == {2}
