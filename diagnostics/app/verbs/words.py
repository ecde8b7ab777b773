"""The words of the console, the verdict, ``ship`` and the report, with their meanings: what ``explain`` looks up."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: Meanings of the words, and the page that has more.
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "over-sharpening": "A run became surer of what it solves often, and lost what it solved rarely: pass@1 rises, "
        "and pass@k at larger k, or the probability of correct answers, falls below the base. docs/verdict.md",
        "base": "The checkpoint that the others are compared with, before RLVR: the lowest step, or the one of --base.",
        "pass@k": "The chance that at least one of k responses to a problem is correct, averaged over problems; "
        "estimated without bias from n samples (arXiv:2107.03374). pass@1 is accuracy.",
        "k": "How many responses to a problem pass@k allows. Each value of k has its own row or column.",
        "n": "Samples per problem and checkpoint.",
        "coverage": "pass@k at large k: the problems that the model can solve at all with many samples.",
        "points": "Percentage points: 100 times the difference of two probabilities. Brackets after a number are its "
        "95 % confidence interval.",
        "verdict": "What the audit concludes of one run, from counts of correct samples alone: a label, one sentence "
        "and the claims that were tested, each with the rate at which it is wrong. docs/verdict.md",
        "over-sharpened": "Label of a verdict: pass@k fell below the base at some k, significantly on these problems "
        "and on the population they were sampled from, and pass@1 did not fall. docs/verdict.md",
        "over-sharpened on these problems": "Label of a verdict: pass@k fell on these very problems; the data cannot "
        "say whether it fell on others of their kind. More problems would. docs/verdict.md",
        "degraded": "Label of a verdict: pass@k fell, and pass@1 fell significantly too. docs/verdict.md",
        "explained by format": "Label of a verdict: pass@k fell, but samples without a readable answer explain it.",
        "not distinguishable from lucky guessing": "Label of a verdict: pass@k fell, but false accepts of the grader "
        "at the base would leave the same data; --guess-rate sets how many it accepts.",
        "loss at single checkpoints": "Label of a verdict: some checkpoint of the window lost pass@k, and the window "
        "as a whole does not show it.",
        "no loss found": "Label of a verdict: a fall of pass@k by 2 points or more is excluded at every k.",
        "inconclusive": "Label of a verdict: the data neither show a fall of pass@k nor exclude one of 2 points. "
        "`oversharp plan` computes how many problems and samples would.",
        "no verdict": "Nothing could be tested; the sentence after it gives the reason.",
        "window": "The last third of the checkpoints, whose samples the verdict pools. Tables call it late.",
        "step": "The training step of a checkpoint; 0 is the base where the base has none.",
        "checkpoint": "The weights of a model at one training step.",
        "store": "The audit.duckdb file that holds samples, grades and findings of all its series. docs/store.md",
        "series": "The checkpoints of one training run, with their base, under one name in the store.",
        "problem": "One question with its accepted answer; problems of equal content are the same problem.",
        "mode": "One way of being correct that a verifier distinguishes from others, such as 3 * (4 + 1) and 15; a "
        "problem with one accepted answer has one mode, and measures of modes are empty for it.",
        "mode collapse": "Correct answers outside of each problem's most frequent one became rarer, though pass@k did "
        "not fall significantly.",
        "panel": "Responses that the base drew once and that every checkpoint scores: what they lose in "
        "log-probability shows what training moved, without new samples.",
        "frontier": "What the base reaches when it is only drawn at lower temperatures: pass@1 against pass@k. A run "
        "above it is better than sharpening. docs/frontier.md",
        "sharper": "Whether a run is better than its base sampled at a lower temperature, or only as sharp: a lower "
        "temperature raises pass@1 and lowers pass@k without any training. docs/frontier.md",
        "better than sharpening": "With the same pass@k, pass@1 is above that of the base at a lower temperature.",
        "sharpening only": "The base at a lower temperature reaches the same pass@1 and pass@k, to within 2 points.",
        "worse than sharpening": "With the same pass@1, pass@k is below that of the base at a lower temperature.",
        "control": "Samples at another temperature that the frontier is made of: the base at lower ones, a checkpoint "
        "at higher ones.",
        "t": "Temperature of the samples, where it is not the one of the audit.",
        "ship": "The checkpoint with the highest pass@1 among those that lost nothing that is shown or estimated; "
        "`oversharp ship` names it, with what is sure of it. docs/guides/checkpoints.md",
        "recommended": "The checkpoint that `oversharp ship` names. A triangle marks its row.",
        "worst pass@k": "The change of pass@k at the k where it is lowest against its error, with an interval for all "
        "checkpoints and k together. It decides whether a checkpoint is out.",
        "out": "A checkpoint that is not to ship: pass@k fell significantly (surely), the verdict tested it as lost "
        "(verdict), the estimate fell by more than is allowed (estimate), its samples are too few for the largest k "
        "(unseen), or it fell on the problems that had no part in the choice (veto).",
        "estimate": "The number itself, without its interval. Out, estimate: pass@k fell by more than 2 points in it, "
        "not significantly.",
        "unseen": "Too few samples at a temperature to estimate pass@k at the largest k; --control-n draws more.",
        "veto": "With --held-out: pass@k fell significantly on the half of the problems that did not choose.",
        "not to choose": "A checkpoint that could not be compared; the reason is below the table.",
        "lower pass@1": "A checkpoint that may be shipped and whose pass@1 is significantly below the best one's.",
        "surely": "More than luck explains, in 95 % of audits, after a correction for all that was looked at in the "
        "same table.",
        "luck": "A difference that sampling the same problems again would give without any change of the model. The "
        "verdict tests the sum over all problems; a table of single problems can leave each of them to luck.",
        "made of": "The change of pass@k from the base to the last checkpoint, split by how often the base solved the "
        "problems. The console prints it after *why*. The part of rarely solved problems is the one that chance and a "
        "real loss share: for each of these problems alone the data cannot tell which it is.",
        "simultaneous": "An interval that contains all values of its table at once in 95 % of audits.",
        "cluster": "Problems that are variants of one another. They rise and fall together, so that an interval counts "
        "clusters; name the field with --cluster.",
        "look": "A verdict on another set of checkpoints or samples of the same run. Looking often finds losses that "
        "are none; levels are spent over looks. docs/verdict.md",
        "claim": "A statement that the verdict tests, with its null hypothesis, p and level. It holds where p is at "
        "most the level; otherwise it is not shown, which does not mean false.",
        "level": "The largest p at which a claim holds: its share of the chance that any false claim is made.",
        "p": "How likely data like these are if the null hypothesis is true. Adjusted: corrected for the number of "
        "tests (Holm).",
        "null hypothesis": "The statement that a test tries to refute, as a rule that nothing changed.",
        "pass@k fell here": "Claim: the mean pass@k of these very problems fell at some k.",
        "pass@k fell": "Claim: pass@k fell at some k on the population that these problems were sampled from.",
        "minority modes lost": "Claim: correct answers outside of each problem's most frequent one became rarer.",
        "a checkpoint lost": "Claim: pass@k of some single checkpoint is below the base's at some k.",
        "some problem lost": "Claim: the success rate of some single problem fell, tested for each problem (Holm).",
        "pass@k fell in the tail": "Claim: pass@k fell at some k above those of the verdict, where only the samples of "
        "the pooled checkpoints reach.",
        "no fall that matters": "Claim: at no k did pass@k fall by 2 points or more.",
        "kernel": "Inner products of the gradients of log-probabilities of responses: how a step on one moves another. "
        "docs/kernel.md",
        "interference": "How much a correct answer loses in log-probability because other problems were trained on.",
        "lost": "No sample of the problem is correct any more. A rarely solved one is lost by chance too: `oversharp "
        "lost` says which fell significantly. Of a checkpoint: pass@k fell significantly at some k.",
        "gained": "The first correct sample of a problem that the base never solved.",
        "fell": "Solved less often than at the base, and not lost.",
        "rose": "Solved more often than at the base, and solved there already.",
        "unchanged": "Solved as often as at the base.",
        "kept": "Of a checkpoint: at no k did pass@k fall by more than 2 points (95 % confidence).",
        "open": "Of a checkpoint: neither a loss of pass@k nor its absence to within 2 points is shown.",
        "left out": "A checkpoint or record that was not used; the reason is printed next to it.",
        "confirmed": "On fresh samples the problem fell or rose significantly (Fisher's exact test, Holm over all).",
        "seemed": "Whether the audit's own samples made the problem look lost or gained.",
        "fresh samples": "Samples that `oversharp confirm` draws to test problems that were chosen for their change.",
        "most between": "The most correct samples at any checkpoint between the base and the last.",
        "none at step": "The checkpoints at which no sample of the problem is correct.",
        "success": "Share of a problem's samples that are correct.",
        "correct": "Samples that the verifier accepted.",
        "k*": "The k above which pass@k of the window stays below the base: where the two curves cross.",
        "detected by": "The first checkpoint with whose samples the verdict would have been the same.",
        "decline began": "The step from which pass@k fell, with its 95 % confidence interval.",
        "format": "A fall that samples without a readable answer explain: answers are written otherwise, or truncated.",
        "guessing": "A fall that wrong answers would explain which the grader accepted at the base.",
        "truncated": "The response reached the token limit before it ended. Tables call it cut off.",
        "not parsed": "The response has no answer that the verifier can read. It counts as wrong.",
        "ambiguous": "The response states several answers, and the verifier cannot tell which is meant.",
        "out of time": "The verifier reached its time limit. The sample counts as wrong.",
        "weights hash": "A hash of all tensors of a checkpoint, which identifies it in the store.",
        "stage": "A part of an audit that is timed separately: sampling, scoring, grading, measuring.",
        "rows written": "Rows that a stage added to the store.",
        "wall time": "Seconds that a stage took on the clock.",
        "core hours": "Hours of one CPU core; several cores share them.",
        "diffuse": "In `oversharp plan`, a loss in which rarely solved problems become rarer.",
        "concentrated": "In `oversharp plan`, a loss in which a few problems are never solved again.",
        "power": "The chance that an audit of that size finds a loss that is there.",
        "same text": "Prompts that are equal to one that was trained on, apart from spaces and letter case.",
        "same words": "Prompts with the words of one that was trained on, numbers included.",
        "shared run": "Prompts that share a long run of words with one that was trained on; --words sets how many.",
        "note": "Something about these problems or samples that may mislead.",
        "repair": "Weights between the base and a checkpoint, which may give back what training lost. docs/repair.md",
    }
)

#: Other spellings, as tables and sentences have them.
ALSO: Mapping[str, str] = MappingProxyType(
    {
        "a run of": "shared run",
        "at k": "k",
        "better": "better than sharpening",
        "better, or only sharper": "sharper",
        "change": "points",
        "difference": "points",
        "controls": "control",
        "cut off": "truncated",
        "gain": "gained",
        "holds": "claim",
        "hours": "core hours",
        "hours, at least": "core hours",
        "last": "step",
        "late": "window",
        "lowest change": "worst pass@k",
        "mean change": "points",
        "only sharper": "sharper",
        "prompts": "problem",
        "report": "verdict",
        "samples": "n",
        "sharpening": "over-sharpening",
        "shipped": "ship",
        "size": "points",
        "steps": "step",
        "truncation": "truncated",
        "unsolved": "lost",
        "whether better or only sharper is not shown": "sharper",
        "why": "made of",
        "worst": "worst pass@k",
    }
)
