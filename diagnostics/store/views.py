"""The relations that users write SQL on, and what every column of them means. ``docs/views.md`` is made from here.

A column that means the same everywhere is told once; a relation tells what is different in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from oversharp.diagnostics.store.columns import COMMON as COMMON
from oversharp.diagnostics.store.columns import COUNT_RELATIONS, Meaning, Relation
from oversharp.diagnostics.store.columns import NO_UNIT as NO_UNIT
from oversharp.diagnostics.store.columns import means as _means
from oversharp.diagnostics.store.ways.relations import WAYS_RELATIONS

_STYLE = (
    "how the answer is stated: boxed, tagged (<answer>), hashes (####), labelled, bare, prose or none; NULL where the "
    "verifier reads no text"
)
_LENIENT = "whether it is correct, or a lenient reader accepts it; NULL where there is none"
_BOXED = "different contents of its \\boxed{}; NULL where the verifier does not look at boxes"

_OF_A_SAMPLE: Mapping[str, Meaning] = {
    "role": _means("own (drawn from this checkpoint), panel (of the base, under settings of its own) or control"),
    "token_ids": _means("tokens of the response, its end token included; NULL if not known"),
    "finish_reason": _means("stop: it ended by itself; length: it was cut off; NULL if not known"),
    "entropy_sum": _means(
        "entropy of the distributions it was drawn from, summed; NULL if the sampler does not say", "nats"
    ),
    "answer": _means("canonical final answer; NA where none was found, NULL while it is not graded"),
    "reward": _means("what the verifier gave; 1 is full; NULL while it is not graded", "reward"),
    "correct": _means("whether its reward is full; NULL while it is not graded"),
    "state": _means("ok, parse_fail, ambiguous, timeout or error: what became of the grading"),
    "reason": _means("why the state is not ok"),
    "n_boxed": _means(_BOXED, "answers"),
    "answer_style": _means(_STYLE),
    "lenient": _means(_LENIENT),
    "rules": _means("by which rules of the verifier; NULL for another tool or package"),
    "verifier": _means("whose grade counts in this series"),
    "own_verifier": _means("the problem's own; recorded:TOOL is a tool's"),
    "strategy_regex": _means("a response that matches is of the strategy code"),
    "n_planned": _means("samples of this problem and role that the audit wants from this checkpoint", "samples"),
    "n_common": _means("samples of this problem and role that it wants from every checkpoint", "samples"),
    "panel": _means("the first of its own samples that are teacher-forced as the panel is", "samples"),
    "entropy_samples": _means("the first of them that token entropy is taken from", "samples"),
}

#: Of a response that two verifiers graded.
_OF_TWO_VERIFIERS = {
    "verifier": _means("who grades in this series"),
    "state": _means("ok, parse_fail, ambiguous, timeout or error: what became of that grading"),
    "own_verifier": _means("the problem's own: whose grades the first series uses; recorded:TOOL is a tool's"),
    "own_answer": _means("canonical final answer by the problem's own verifier; NA where none was found"),
    "own_correct": _means("whether the problem's own verifier accepted it"),
    "own_state": _means("what became of that grading"),
}
RELATIONS: tuple[Relation, ...] = (
    Relation(
        name="findings",
        row="a number that the audit stands behind, or why there is none",
        columns={
            "measure": _means("name of the measure; `oversharp explain NAME` says what it means"),
            "scope": _means("what the value is of: `all` is the whole problem set"),
            "k": _means("number of samples that pass@k and its kin allow; NULL elsewhere", "samples"),
            "value": _means("the value; NULL if unknown, then `why` says why", "see `unit`"),
            "low": _means("lower end of its 95 % interval; NULL where it has none", "see `unit`"),
            "high": _means("upper end of its 95 % interval; NULL where it has none", "see `unit`"),
            "n": _means("problems, samples, tokens, … that the value rests on", "units of the measure"),
            "unit": _means("unit of value, low and high"),
            "why": _means("why the value is unknown; NULL if it is known"),
            "interval_over": _means("what the interval takes as independent: problems, or clusters; NULL without one"),
            "why_no_interval": _means("why related problems leave no interval; NULL if they do not matter"),
        },
    ),
    Relation(
        name="renamed_measures",
        row="a measure that had another name once: queries written for that find its rows in findings by this one",
        columns={
            "measure": _means("name of the measure"),
            "formerly": _means("name that it had"),
        },
    ),
    Relation(
        name="verdicts",
        row="the verdict on a series",
        columns={
            "label": _means("what the sentence begins with: over_sharpened, mode_collapse, no_loss, inconclusive, …"),
            "sentence": _means("the verdict in one sentence"),
            "p_exact": _means("p value, these problems: pass@k fell at no k", "probability"),
            "p_population": _means("p value, problems like these: pass@k fell at no k", "probability"),
            "p_minority": _means("p value, these problems: no correct minority mode was lost", "probability"),
            "k_most": _means("the verdict holds for k = 1 … k_most", "samples"),
            "document": _means("all of the verdict: the fields of `oversharp.diagnostics.verdict.record.Verdict`"),
        },
    ),
    Relation(
        name="verdict_claims",
        row="a claim that a verdict tested",
        columns={
            "name": _means("name of the claim"),
            "null_hypothesis": _means("what the claim says is false"),
            "scope": _means("which problems it is about"),
            "p": _means("p value of the null hypothesis; NULL where it was not tested", "probability"),
            "level": _means("the claim holds where p is at most this; NULL where it was not tested", "probability"),
            "holds": _means("whether the claim holds"),
            "size": _means("change of pass@k; of `some problem lost` the share of problems", "probability, or share"),
            "low": _means("lower end of its interval; NULL where it has none", "as size"),
            "high": _means("upper end of its interval; NULL where it has none", "as size"),
            "why": _means("why it was not tested or what it rests on; NULL if nothing is to be said"),
        },
    ),
    Relation(
        name="checkpoint_verdicts",
        row="a checkpoint after the base, with what the verdict says of it",
        columns={
            "lost": _means("whether it surely lost what the base had; NULL if it was not tested"),
            "kept": _means("whether it surely kept it; NULL if it was not tested"),
            "k": _means("where its pass@k changed as said", "samples"),
            "change": _means("its pass@k less the base's; NULL if unknown", "probability"),
            "low": _means("lower end of the interval of the change; NULL where it has none", "probability"),
            "high": _means("upper end of the interval of the change; NULL where it has none", "probability"),
            "cause": _means("what else may explain a loss: format, guessing, unread; NULL: nothing, or nobody asked"),
            "why": _means("why nothing is said of it; NULL where something is"),
        },
    ),
    Relation(
        name="shipping",
        row="a checkpoint as something to ship, or what a control drew of it: what `oversharp ship` says of all series "
        "that can be compared",
        columns={
            "temperature": _means("at which a control drew it; NULL for the audit's own", "temperature"),
            "role": _means("recommended, candidate, or out: not to be shipped; NULL where nothing can be said"),
            "may_be_best": _means("whether no candidate surely has a higher pass@1; one of these is the best, in 95 %"),
            "pass_at_1": _means("its pass@1; NULL if unknown", "probability"),
            "change": _means("its pass@1 less the base's; NULL at the base", "probability"),
            "low": _means("lower end of the band of that change over all checkpoints and k", "probability"),
            "high": _means("upper end of it", "probability"),
            "worst_k": _means("where its pass@k less the base's is lowest", "samples"),
            "worst_change": _means("its pass@k less the base's there; NULL at the base", "probability"),
            "worst_low": _means("lower end of the band of that change", "probability"),
            "worst_high": _means("upper end of it", "probability"),
            "loss_at_most": _means("surely at no k did its pass@k fall by more; NULL at the base", "probability"),
            "out_by": _means("what shows that it is out: band, verdict, estimate, reach or veto; NULL for others"),
            "why": _means("why it is out, or why nothing can be said; NULL for others"),
            "path": _means("where its weights were read last; NULL where another tool drew the samples"),
        },
    ),
    Relation(
        name="verdict_looks",
        row="a look at a series: a verdict on another set of checkpoints than the looks before (table)",
        columns={
            "look_id": _means("hash of the checkpoints that are compared, their samples and problems"),
            "number": _means("1, 2, … in the order in which they were taken"),
            "steps": _means("of the checkpoints that were compared with the base", "steps"),
            "declared": _means("looks that were declared before the first; NULL for any number"),
            "runs": _means("of so many runs one will be chosen, as was declared at this look"),
        },
    ),
    Relation(
        name="confirmed_problems",
        row="a problem that seemed lost or gained, drawn afresh at the base and at a late checkpoint",
        columns={
            "checkpoint": _means("label of the late checkpoint"),
            "step": _means("optimizer step of the late checkpoint", "steps"),
            "change": _means("lost or gained: what it seemed"),
            "n_base": _means("fresh samples of the base", "samples"),
            "correct_base": _means("correct ones among them", "samples"),
            "n_late": _means("fresh samples of the late checkpoint", "samples"),
            "correct_late": _means("correct ones among them", "samples"),
            "p": _means("one-sided p value of Fisher's exact test", "probability"),
            "p_adjusted": _means("the same, corrected for all problems that were drawn again (Holm)", "probability"),
            "confirmed": _means("whether p_adjusted is at most 0.05"),
        },
    ),
    Relation(
        name="graded_samples",
        row="a sampled response with its grade",
        columns={
            "n_tokens": _means("length of the response, its end token included; NULL if not known", "tokens"),
            "finish_reason": _means("stop: it ended by itself; length: it was cut off; NULL if not known"),
            "reward": _means("what the verifier gave; 1 is full", "reward"),
            "state": _means("ok, parse_fail, ambiguous, timeout or error: what became of the grading"),
            "reason": _means("why the state is not ok"),
            "n_boxed": _means(_BOXED, "answers"),
            "answer_style": _means(_STYLE),
            "lenient": _means(_LENIENT),
            "strategy": _means("code where the text matches the audit's strategy pattern, else prose"),
            "looped": _means("whether it was cut off while it repeated a passage; NULL if nobody tells how it ended"),
            "reconsiders": _means("whether it takes something back; NULL beyond a problem's first 32"),
            "common": _means("whether it is one of the first n_common: as many at every checkpoint"),
            "n_planned": _means("samples of this problem that the audit wants from this checkpoint", "samples"),
            "n_common": _means("samples of this problem that it wants from every checkpoint", "samples"),
        },
    ),
    Relation(
        name="regraded_samples",
        row="a sampled response of a series that grades samples again, with both grades",
        columns={
            **_OF_TWO_VERIFIERS,
            "own_reward": _means("what the problem's own verifier, or tool, gave", "reward"),
        },
    ),
    Relation(
        name="grade_disagreements",
        row="a response that one of two verifiers calls correct and the other does not",
        columns={
            **_OF_TWO_VERIFIERS,
            "n": _means("how often the checkpoint gave it", "samples"),
        },
    ),
    *COUNT_RELATIONS,
    Relation(
        name="base_responses",
        row="a different response of the base to a problem, among its own samples",
        columns={
            "n": _means("how often the base gave it", "samples"),
            "own_law": _means("whether the base was drawn at temperature 1, untruncated"),
        },
    ),
    Relation(name="greedy_grades", row="the greedy response to a problem at a checkpoint"),
    Relation(
        name="answer_counts",
        row="an answer to a problem at a checkpoint, among as many samples at every checkpoint",
        columns={
            "n": _means("how often it was given", "samples"),
            "n_planned": _means("samples of this problem that the audit wants from every checkpoint", "samples"),
        },
    ),
    *WAYS_RELATIONS,
    Relation(
        name="planned_samples",
        row="a problem at a checkpoint, with the number of samples that the audit wants of it",
        columns={
            "n_planned": _means("samples of this problem that the audit wants from this checkpoint", "samples"),
            "n_common": _means("samples of this problem that it wants from every checkpoint", "samples"),
        },
    ),
    Relation(
        name="own_samples",
        row="a sample drawn from a checkpoint that the audit rests on, graded or not",
        columns={**_OF_A_SAMPLE, "role": _means("own, as `audit_samples` calls it")},
    ),
    Relation(
        name="audit_samples",
        row="a sample that the audit rests on, graded or not, once per role",
        columns=_OF_A_SAMPLE,
    ),
    Relation(
        name="sample_entropies",
        row="a response whose token entropy is known, from the sampler or teacher-forced",
    ),
    Relation(
        name="mode_logps",
        row="an enumerated correct response of a problem, scored under a checkpoint",
        columns={"mode": _means("text of the enumerated response")},
    ),
    Relation(
        name="panel_logps",
        row="a panel response (drawn once, by the base) scored under a checkpoint",
        columns={"sample_index": _means("0, 1, … among the panel responses of its problem")},
    ),
    Relation(
        name="own_logps",
        row="one of the first own samples of a checkpoint, scored",
        columns={
            "sampler_logp_sum": _means("log-probability as the sampler says", "nats"),
            "own_logp_sum": _means("teacher-forced under its own checkpoint; NULL if not scored", "nats"),
            "base_logp_sum": _means("teacher-forced under the base; NULL if not scored", "nats"),
        },
    ),
    Relation(
        name="repeated_logps",
        row="a panel response scored twice under the same weights, in batches of other shapes",
        columns={
            "logp_sum": _means("its log-probability the first time", "nats"),
            "second_logp_sum": _means("and the second time", "nats"),
        },
    ),
    Relation(
        name="panel_tokens",
        row="a panel response under a checkpoint, token by token",
        columns={"sample_index": _means("0, 1, … among the panel responses of its problem")},
    ),
    Relation(name="own_tokens", row="an own sample of a checkpoint under itself, token by token"),
    Relation(
        name="training_tokens",
        row="a response of a training batch, under the checkpoint after it and the one before, token by token",
        columns={
            "problem_id": _means("hash of the training prompt"),
            "token_logps": _means("log-probability of each token under the later checkpoint", "nats"),
            "token_logps_before": _means("log-probability of each token under the earlier one", "nats"),
        },
    ),
    Relation(
        name="response_tokens",
        row="a scored response, token by token, whatever it was scored for",
        columns={"settings_id": _means("hash of the settings whose template the prompt was wrapped in")},
    ),
    Relation(
        name="kernel_runs",
        row="a checkpoint whose gradient kernel was asked for",
        columns={
            "certificate": _means("relative residual of the random-sign test; NULL without a kernel", "1"),
            "why": _means("why there is no kernel; NULL if there is one"),
        },
    ),
    Relation(
        name="kernel_members",
        row="a response in a kernel, once per role",
        columns={
            "position": _means("its row and column in the kernel, from 0"),
            "role": _means(
                "panel (of the base), mode (enumerated), own (sample of this checkpoint) or batch (of the trainer)"
            ),
            "sample_index": _means("0, 1, … among the responses of its problem in this role"),
            "task": _means("problem set that the problem is from; training for a batch"),
            "related": _means("problems of one name here are related"),
        },
    ),
    Relation(
        name="kernel_pairs",
        row="two responses in a kernel; the upper triangle, the diagonal included",
        columns={
            "row_position": _means("position of the one"),
            "column_position": _means("position of the other"),
            "value": _means("inner product of the gradients of their log-probabilities", "squared gradient norm"),
        },
    ),
    Relation(
        name="current_audits",
        row="the latest audit of a series",
        columns={
            "n": _means("samples per problem and checkpoint", "samples"),
            "n_base": _means("samples per problem from the base", "samples"),
            "entropy_samples": _means("of those, the ones that token entropy is taken from", "samples"),
            "ks": _means("values of k for pass@k", "samples"),
            "strategy_regex": _means("a response that matches is of the strategy code"),
            "updated_at": _means("when the audit was begun"),
            "provenance": _means("command line, versions, and what was left out"),
            "panel": _means("panel responses per problem; 0 without a panel", "responses"),
            "panel_settings_id": _means("hash of the panel's sampling settings"),
            "kernel_problems": _means("problems in the gradient kernel; 0 without one", "problems"),
            "kernel_responses": _means("fixed responses, and own samples, of each of them", "responses"),
            "verifier": _means("whose grades count; NULL for each problem's own verifier"),
            "guess_rate": _means("of wrong responses, the accepted, as the user says; NULL if unsaid", "probability"),
            "looks": _means("how often its verdict will be read while training goes on; NULL for any number"),
            "runs": _means("of so many runs one will be chosen"),
        },
    ),
    Relation(
        name="audit_problems",
        row="a problem of an audit (table)",
        columns={
            "position": _means("place in the problem file, from 0"),
            "cluster": _means("problems of one cluster are related; NULL if it stands for itself"),
        },
    ),
    Relation(
        name="series_checkpoints",
        row="a checkpoint of a series (table)",
        columns={"path": _means("where it was read last")},
    ),
    Relation(
        name="problems",
        row="a problem (table)",
        columns={
            "prompt": _means("text of the problem, before any template; of an import, as the tool wrote it"),
            "gold": _means("the accepted answer"),
            "verifier": _means("who grades its responses"),
            "source_id": _means("the id that the user's file gave it; NULL if none"),
            "difficulty": _means("as the problem file or task says; NULL if it does not", "of the task"),
            "meta": _means("further fields of the problem"),
        },
    ),
    Relation(
        name="modes",
        row="an accepted response of a problem whose responses can be listed (table)",
        columns={"mode": _means("text of the response")},
    ),
    Relation(
        name="settings",
        row="sampling settings (table); what another tool did not tell is NULL",
        columns={
            "sampler": _means("the engine, or the tool whose samples were imported"),
            "temperature": _means("sampling temperature", "1"),
            "top_p": _means("nucleus mass; 1 is all", "probability"),
            "top_k": _means("likeliest tokens kept; 0 is all", "tokens"),
            "max_tokens": _means("longest response", "tokens"),
            "prompt_template": _means("text around every prompt"),
            "system_prompt": _means("system turn"),
            "chat": _means("whether the tokenizer's chat template was used"),
            "seed": _means("seed of all draws"),
            "dtype": _means("precision of the model"),
            "chat_args": _means("what else the chat template was given, a JSON object; NULL is nothing"),
        },
    ),
    Relation(
        name="training_metrics",
        row="a number that the trainer logged (table)",
        columns={
            "step": _means("optimizer step at which it was logged", "steps"),
            "name": _means("the trainer's name for it"),
            "value": _means("the number", "the trainer's"),
        },
    ),
    Relation(
        name="training_responses",
        row="a response of a training batch (table)",
        columns={
            "step": _means("the checkpoint that it led to", "steps"),
            "problem_id": _means("hash of the training prompt"),
            "prompt": _means("the training prompt"),
            "truncated": _means("whether it was cut off"),
            "correct": _means("whether the trainer called it correct"),
            "draws": _means("times that it was drawn in its group", "samples"),
        },
    ),
    Relation(
        name="events",
        row="a stage of an audit that ended (table)",
        columns={
            "logged_at": _means("when it ended"),
            "stage": _means("sample, teacher-force, grade, kernel, measure, verdict, … or failed"),
            "checkpoint_id": _means("hash of the checkpoint's weights; NULL for a stage over all"),
            "wall_s": _means("how long it took", "seconds"),
            "rows_written": _means("rows that it wrote", "rows"),
            "note": _means("what went wrong"),
        },
    ),
)

_BY_NAME = MappingProxyType({relation.name: relation for relation in RELATIONS})


def meaning_of(relation: str, column: str) -> Meaning:
    """What ``column`` of ``relation`` holds. Raises ``KeyError`` for one that nobody described.

    >>> meaning_of("findings", "k").unit, meaning_of("graded_samples", "step").unit
    ('samples', 'steps')
    """
    own = _BY_NAME[relation].columns
    return own[column] if column in own else COMMON[column]
