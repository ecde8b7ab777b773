"""Samples that a test writes out, column by column."""


def drawn(checkpoint: str, problem: str = "q1", **columns) -> list[dict]:
    """Samples 0, 1, … of one problem; ``columns`` as in the samples of a ``World``, all of one length."""
    rows = zip(*columns.values(), strict=True)
    return [
        {"checkpoint": checkpoint, "problem": problem, "sample_index": i, **dict(zip(columns, row, strict=True))}
        for i, row in enumerate(rows)
    ]


def response(problem: str, entropies, index: int = 0, checkpoint: str = "base") -> dict:
    """One sample with the entropy of each of its tokens."""
    tokens = {"token_logps": [-1.0] * len(entropies), "token_entropies": list(entropies)}
    return {"checkpoint": checkpoint, "problem": problem, "sample_index": index, **tokens}
