"""Measure of the number of distinct correct modes among k samples."""

from __future__ import annotations

from collections.abc import Iterator

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.counts import (
    ANSWER_COLUMNS,
    NO_SAMPLES,
    ONE_MODE,
    explain_too_few,
    find_incomplete,
    has_second_mode,
    keep_reliable_interval,
    rarefaction,
)
from oversharp.diagnostics.measures.declare import per_series
from oversharp.diagnostics.statistics.intervals import sparse_interval

NO_MODES = "no correct sample has a named mode"


@per_series(
    needs=("answer_counts",),
    missing=NO_SAMPLES,
    columns=ANSWER_COLUMNS,
    first_round=True,
    title="Distinct correct modes among k samples",
    unit="modes",
    section="modes",
    rank=40,
    plot=Plot(x="k", group="checkpoint", y_label="distinct correct modes", log_x=True),
)
def mode_rarefaction(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Mode rarefaction: the expected number of distinct correct modes among k samples.

    Meaning: a mode that occurs c times among n samples is among k of them with probability 1 − C(n−c, k)/C(n, k). The
    value is the sum of these probabilities over a problem's correct modes, averaged over problems. Pass@k measures
    whether any correct answer is among k samples. Rarefaction measures how many correct modes are. It falls with every
    mode that becomes rare, even if pass@k stays at 1.
    Unit: modes. 95 % t interval over problems with a variance floor for problems without a mode, for k up to n/2 and if
    at least five problems have a mode. Each problem has the same number of samples at every checkpoint.
    Limits: modes that were never sampled do not count. It also falls under moderate sharpening, so a fall alone does
    not show a loss. The verifier must name the mode of a solution. The value is unknown if no problem has samples of
    two correct modes at any checkpoint, for example because the verifier's modes are the answers.
    Source: Hurlbert 1971, Ecology 52:577, Eq 14.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
    ...     ("base", "q", "42", "6 * 7", True, 2), ("base", "q", "42", "7 * 6", True, 1),
    ...     ("base", "q", "1", None, False, 1),
    ...     ("late", "q", "42", "6 * 7", True, 4)], n=4, ks=(1, 2))
    >>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in mode_rarefaction(evidence)]  # 1 − 1/6, and 1 − 3/6
    [('base', 1, 0.75), ('base', 2, 1.3333), ('late', 1, 1.0), ('late', 2, 1.0)]
    """
    frame = evidence.frames["answer_counts"]
    why = find_incomplete(evidence, frame, frame["n"])
    n_of_problem = frame.groupby(["checkpoint_id", "problem_id"])["n"].sum()
    modes = frame[frame["correct"].astype(bool) & frame["mode"].notna()]
    counts = modes.groupby(["checkpoint_id", "problem_id", "mode"])["n"].sum().reset_index()
    why_none = NO_MODES if modes.empty else None if has_second_mode(evidence) else ONE_MODE
    for checkpoint_id in evidence.checkpoint_ids:
        if why_not := why.get(checkpoint_id) or why_none:
            yield checkpoint_id, dict.fromkeys(evidence.ks, why_not)
            continue
        n_of = n_of_problem[checkpoint_id]
        own = counts[counts["checkpoint_id"] == checkpoint_id]
        place_M, n_P = n_of.index.get_indexer(own["problem_id"]), n_of.to_numpy()
        fewest, cluster_P = int(n_P.min()), evidence.clusters(n_of.index)
        results: dict[int, Result] = {}
        for k in evidence.ks:
            if why_not := explain_too_few(k, fewest, of_first_round=evidence.is_stopped):
                results[k] = why_not
                continue
            seen_P = rarefaction(n_P, place_M, own["n"].to_numpy(), k)
            results[k] = keep_reliable_interval(sparse_interval(seen_P, cluster_P=cluster_P), k, fewest)
        yield checkpoint_id, results
