"""Run one training step: sample rollouts, grade them, compute advantages, update the policy."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.diagnostics.records.types import Grade, Problem
from oversharp.diagnostics.verifiers import Verifiers
from oversharp.trainers.batch import RolloutBatch, concatenate
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.model.forward import ForwardSettings
from oversharp.trainers.model.network import Network
from oversharp.trainers.model.policy import adapter_off
from oversharp.trainers.objectives.contract import Credit, GroupedRewards, Objective, is_constant
from oversharp.trainers.rollouts.engine import RolloutEngine
from oversharp.trainers.rollouts.memory_network import MemoryNetwork
from oversharp.trainers.run.directory import RolloutRow
from oversharp.trainers.seeds import batch_positions, stream_seed
from oversharp.trainers.update import UpdateBatch, UpdateReport, accumulate_gradient, frozen_logps
from oversharp.trainers.warning_signs import step_variety


@dataclass(frozen=True, kw_only=True)
class Learner:
    """State of a run, which every step uses and updates.

    ``validation`` has problems outside the training set; it is empty without validation. ``network`` and
    ``reference_network`` compute log-probabilities under policy and reference. ``reference_network`` is None unless the
    objective needs a reference. ``rehearsal_engine`` samples from the reference, which in LoRA runs is the policy
    without its adapter. ``rehearsal_engine`` and ``memory_network`` are None unless the objective has such a part.
    """

    config: TrainConfig
    objective: Objective
    problems: Sequence[Problem]
    validation: Sequence[Problem]
    policy: LoadedModel
    network: Network
    optimizer: torch.optim.Optimizer
    engine: RolloutEngine
    reference_network: Network | None
    rehearsal_engine: RolloutEngine | None
    memory_network: MemoryNetwork | None
    forward: ForwardSettings


@dataclass(frozen=True, kw_only=True)
class StepRollouts:
    """Graded rollouts in order of the prompts. ``n_drawn`` includes rollouts that resampling discarded."""

    problems: list[Problem]
    rollouts: RolloutBatch
    texts: list[str]
    grades: list[Grade]
    n_drawn: int

    @property
    def row_problems(self) -> list[Problem]:
        """Problem of each rollout."""
        return [problem for problem in self.problems for _ in range(self.rollouts.group_size)]


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """Metrics of one step, which are a line of ``metrics.jsonl``, and its rollouts."""

    metrics: dict[str, float | int]
    rows: list[RolloutRow]


def train_step(learner: Learner, step: int, verifiers: Verifiers) -> StepOutcome:
    """Run one training step. Raise ``TrainingError`` if a loss or gradient is not finite."""
    config, objective = learner.config, learner.objective
    started = time.perf_counter()
    for group in learner.optimizer.param_groups:
        group["lr"] = learning_rate(step, config)
    drawn = draw_rollouts(learner, step, verifiers)
    generated = time.perf_counter()
    rollouts = drawn.rollouts

    old_logp_BT = None
    if config.is_off_policy or objective.correction is not None or objective.is_by_token:
        old_logp_BT = frozen_logps(learner.network, rollouts, learner.forward)
    reference_logp_BT = None
    if objective.asks_for("reference_logp") and learner.reference_network is not None:
        reference_logp_BT = frozen_logps(learner.reference_network, rollouts, learner.forward)
    importance_BT = None
    if objective.correction is not None and old_logp_BT is not None:
        importance_BT = objective.correction.importance(
            old_logp_BT - rollouts.behaviour_logp_BT, rollouts.response_mask_BT
        )
    rewards = group_rewards(learner, drawn, reference_logp_BT, verifiers)
    if objective.is_by_token and old_logp_BT is not None and reference_logp_BT is not None:
        gap_BT = (old_logp_BT - reference_logp_BT).double().cpu()
        rewards = replace(rewards, reference_gap_BT=gap_BT, mask_BT=rollouts.response_mask_BT.cpu())
    credit = objective.credit(rewards)
    scored = time.perf_counter()

    reports = []
    grad_norms = []
    per_update = config.batch_prompts // config.used_updates_per_batch
    for first in [*range(0, config.batch_prompts, per_update)] * config.epochs_per_batch:
        last = first + per_update
        rows = slice(first * config.group_size, last * config.group_size)
        batch = UpdateBatch(
            rollouts=rollouts.select_prompts(first, last),
            credit=credit.select_prompts(first, last),
            old_logp_BT=None if old_logp_BT is None else old_logp_BT[rows],
            reference_logp_BT=None if reference_logp_BT is None else reference_logp_BT[rows],
            importance_BT=None if importance_BT is None else importance_BT[rows],
            rehearsal=rehearsal_samples(learner, step, drawn.problems[first:last]),
        )
        report, grad_norm = update_policy(learner, step, batch, drawn.problems[first:last])
        reports.append(report)
        grad_norms.append(grad_norm)
    updated = time.perf_counter()
    memory_network_loss = (
        None if learner.memory_network is None else learner.memory_network.learn(rollouts, learner.forward)
    )
    learned = time.perf_counter()
    sync_metrics = learner.engine.sync()
    ended = time.perf_counter()

    n_tokens = int(rollouts.n_tokens_B.sum())
    n_rows = len(rollouts.n_tokens_B)
    metrics: dict[str, float | int] = {
        "step": step,
        "reward_mean": float(rewards.reward_PG.mean()),
        "correct_rate": float(rewards.correct_PG.double().mean()),
        "frac_zero_std": float(is_constant(rewards.reward_PG).double().mean()),
        "advantage_abs_mean": float(credit.advantage_PG.abs().mean()),
        "samples_drawn": drawn.n_drawn,
        "samples_kept": n_rows,
        "samples_skipped": n_rows - sum(report.n_used for report in reports) // config.epochs_per_batch,
        "loss": sum(report.loss for report in reports) / len(reports),
        "grad_norm": max(grad_norms),
        "clip_fraction": sum(report.clip_fraction for report in reports) / len(reports),
        "learning_rate": learning_rate(step, config),
        "token_entropy_nats": float(rollouts.entropy_sum_B.double().sum()) / n_tokens,
        "response_tokens_mean": n_tokens / n_rows,
        "truncation_rate": float(rollouts.truncated_B.double().mean()),
        "ungraded_rate": sum(grade.state != "ok" for grade in drawn.grades) / n_rows,
        **step_variety(drawn.texts, rewards.correct_PG.flatten().tolist(), config.group_size).metrics,
        **sync_metrics,
        "generation_s": generated - started,
        "scoring_s": scored - generated,
        "forward_s": sum(report.forward_s for report in reports),
        "backward_s": sum(report.backward_s for report in reports),
        "update_s": updated - scored,
        "memory_network_s": learned - updated,
        "sync_s": ended - learned,
    }
    computed = [report for report in reports if report.n_used]
    # there is no gap if no row had an advantage; with a memory network, rollouts differ from the policy by design
    if computed and objective.decoding is None:
        metrics["sampler_logp_gap_mean"] = sum(report.logp_gap_mean for report in computed) / len(computed)
        metrics["sampler_logp_gap_max"] = max(report.logp_gap_max for report in computed)
    if objective.penalties:
        metrics["penalty"] = sum(report.penalty for report in reports) / len(reports)
    if objective.rehearsal is not None:
        metrics["rehearsal_loss"] = sum(report.rehearsal_loss or 0.0 for report in reports) / len(reports)
    if memory_network_loss is not None:
        metrics["memory_network_loss"] = memory_network_loss
    return StepOutcome(metrics=metrics, rows=rollout_rows(step, drawn, credit, rewards))


def learning_rate(step: int, config: TrainConfig) -> float:
    """Return the learning rate of a step: linear warm-up, then the schedule, as in transformers.

    Steps are counted from 1.

    >>> config = TrainConfig(learning_rate=1.0, warmup_steps=2, max_steps=6, schedule="linear")
    >>> [learning_rate(step, config) for step in range(1, 7)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    warmup = config.warmup_steps
    if step <= warmup:
        return config.learning_rate * step / warmup
    progress = (step - warmup - 1) / (config.max_steps - warmup)
    left = {"constant": 1.0, "linear": 1.0 - progress, "cosine": (1.0 + math.cos(math.pi * progress)) / 2}
    return config.learning_rate * left[config.schedule]


def draw_rollouts(learner: Learner, step: int, verifiers: Verifiers) -> StepRollouts:
    """Sample and grade the rollouts of this step.

    With resampling, groups of equal rewards are replaced by groups of further prompts, which are in a separate random
    order. If there are too few groups of mixed rewards after the last round, groups of equal rewards fill the batch.
    """
    config, resampling = learner.config, learner.objective.resampling
    own_order = None if config.order == "given" else config.seed
    rounds: list[StepRollouts] = []
    for number in range(1 if resampling is None else resampling.max_rounds):
        positions = batch_positions(
            own_order if number == 0 else stream_seed(config.seed, "resampled order", number),
            step,
            n_problems=len(learner.problems),
            batch_prompts=config.batch_prompts,
        )
        stream = stream_seed(config.seed, "rollouts" if number == 0 else f"resampled rollouts {number}", step)
        chosen = [learner.problems[position] for position in positions]
        rounds.append(sample_and_grade(learner, chosen, stream, verifiers))
        if resampling is None:
            return rounds[0]
        mixed = [find_mixed_groups(drawn) for drawn in rounds]
        if sum(len(places) for places in mixed) >= config.batch_prompts:
            break
    constant = [
        [place for place in range(len(drawn.problems)) if place not in mixed[n]] for n, drawn in enumerate(rounds)
    ]
    places = [
        (n, place) for group in (mixed, constant) for n, group_places in enumerate(group) for place in group_places
    ]
    return select_groups(rounds, places[: config.batch_prompts])


def find_mixed_groups(drawn: StepRollouts) -> list[int]:
    """Return the indices of the prompts whose rewards differ."""
    reward_PG, _ = as_groups(drawn.grades, drawn.rollouts.group_size)
    return (~is_constant(reward_PG)).nonzero()[:, 0].tolist()


def select_groups(rounds: Sequence[StepRollouts], places: Sequence[tuple[int, int]]) -> StepRollouts:
    """Return the groups at these (round, index in the round) pairs, in this order."""
    parts = []
    for number, place in places:
        drawn, group_size = rounds[number], rounds[number].rollouts.group_size
        rows = slice(place * group_size, (place + 1) * group_size)
        parts.append(
            (
                drawn.problems[place],
                drawn.rollouts.select_prompts(place, place + 1),
                drawn.texts[rows],
                drawn.grades[rows],
            )
        )
    return StepRollouts(
        problems=[problem for problem, _, _, _ in parts],
        rollouts=concatenate([rollouts for _, rollouts, _, _ in parts]),
        texts=[text for _, _, texts, _ in parts for text in texts],
        grades=[grade for _, _, _, grades in parts for grade in grades],
        n_drawn=sum(len(drawn.grades) for drawn in rounds),
    )


def sample_and_grade(learner: Learner, chosen: Sequence[Problem], seed: int, verifiers: Verifiers) -> StepRollouts:
    """Sample and grade ``group_size`` rollouts of each problem. ``seed`` determines the samples."""
    config, tokenizer = learner.config, learner.policy.tokenizer
    rollouts = learner.engine.sample(
        [encode_prompt(tokenizer, problem, config) for problem in chosen],
        group_size=config.group_size,
        max_tokens=config.used_max_tokens,
        temperature=config.temperature,
        seed=seed,
    )
    return grade_rollouts(learner, chosen, rollouts, verifiers)


def grade_rollouts(
    learner: Learner, chosen: Sequence[Problem], rollouts: RolloutBatch, verifiers: Verifiers
) -> StepRollouts:
    """Decode the rollouts to text and grade them."""
    texts = learner.policy.tokenizer.batch_decode(_strip_padding(rollouts), skip_special_tokens=True)
    row_problems = [problem for problem in chosen for _ in range(rollouts.group_size)]
    return StepRollouts(
        problems=list(chosen),
        rollouts=rollouts,
        texts=texts,
        grades=verifiers.grade(list(zip(row_problems, texts, strict=True))),
        n_drawn=len(texts),
    )


def group_rewards(
    learner: Learner, drawn: StepRollouts, reference_logp_BT: Float[Tensor, "row token"] | None, verifiers: Verifiers
) -> GroupedRewards:
    """Return the inputs from which the objective computes advantages."""
    group_size = drawn.rollouts.group_size
    above = learner.config.correct_above
    reward_PG, correct_PG = as_groups(drawn.grades, group_size, correct_above=above)
    greedy_correct_P = None
    if learner.objective.asks_for("greedy"):
        prompts = [encode_prompt(learner.policy.tokenizer, problem, learner.config) for problem in drawn.problems]
        likeliest = learner.engine.greedy(prompts, max_tokens=learner.config.used_max_tokens)
        greedy_correct_P = torch.tensor(
            [is_correct(grade, above) for grade in grade_rollouts(learner, drawn.problems, likeliest, verifiers).grades]
        )
    return GroupedRewards(
        reward_PG=reward_PG,
        correct_PG=correct_PG,
        n_tokens_PG=drawn.rollouts.n_tokens_B.cpu().view(-1, group_size),
        truncated_PG=drawn.rollouts.truncated_B.cpu().view(-1, group_size),
        reference_logp_PG=None
        if reference_logp_BT is None
        else reference_logp_BT.double().sum(dim=1).cpu().view(-1, group_size),
        greedy_correct_P=greedy_correct_P,
    )


def rehearsal_samples(learner: Learner, step: int, problems: Sequence[Problem]) -> RolloutBatch | None:
    """Return samples of the reference policy for these problems; None if the objective has no rehearsal."""
    rehearsal, engine, config = learner.objective.rehearsal, learner.rehearsal_engine, learner.config
    if rehearsal is None or engine is None:
        return None
    with adapter_off(learner.policy):
        return engine.sample(
            [encode_prompt(learner.policy.tokenizer, problem, config) for problem in problems],
            group_size=rehearsal.samples_per_prompt,
            max_tokens=config.used_max_tokens,
            temperature=config.temperature,
            seed=stream_seed(config.seed, f"rehearsal {problems[0].problem_id}", step),
        )


def update_policy(
    learner: Learner, step: int, batch: UpdateBatch, problems: Sequence[Problem]
) -> tuple[UpdateReport, float]:
    """Make one optimizer step. Return its report and the gradient norm before clipping.

    If a loss or gradient is not finite, raises ``TrainingError`` and makes no step.
    """
    learner.optimizer.zero_grad(set_to_none=True)
    report = accumulate_gradient(
        learner.network, batch, learner.objective, learner.forward, max_tokens=learner.config.used_max_tokens
    )
    trained = [parameter for parameter in learner.policy.model.parameters() if parameter.requires_grad]
    grad_norm = float(torch.nn.utils.clip_grad_norm_(trained, learner.config.max_grad_norm, foreach=True))
    entropy_sum = float(batch.rollouts.entropy_sum_B.double().sum())
    if not all(map(math.isfinite, (report.loss, grad_norm, entropy_sum))):
        names = ", ".join(problem.problem_id for problem in problems[:3])
        raise TrainingError(
            f"step {step}: loss {report.loss}, gradient norm {grad_norm}, summed entropy {entropy_sum} on the batch of "
            f"problems {names}{', …' if len(problems) > 3 else ''}; the checkpoints before it are intact, "
            "start a new run with a lower --learning-rate"
        )
    if report.n_used or report.rehearsal_loss is not None:
        # no step for a zero gradient: Adam's momentum would still change the weights
        learner.optimizer.step()
    return report, grad_norm


def is_correct(grade: Grade, above: float | None) -> bool:
    """Return whether a response is correct in training.

    Its reward must exceed ``above``. If that is None, the grade's own verdict is used.

    >>> half = Grade(answer="4", mode=None, reward=0.5)
    >>> is_correct(half, None), is_correct(half, 0.4), is_correct(half, 0.5)
    (False, True, False)
    """
    return grade.correct if above is None else grade.state == "ok" and grade.reward > above


def as_groups(
    grades: Sequence[Grade], group_size: int, *, correct_above: float | None = None
) -> tuple[Float[Tensor, "prompt group"], Bool[Tensor, "prompt group"]]:
    """Return rewards and correctness (see ``is_correct``) with one row per prompt. Grades are in order of prompts."""
    reward_B = torch.tensor([grade.reward for grade in grades], dtype=torch.float64)
    correct_B = torch.tensor([is_correct(grade, correct_above) for grade in grades])
    return reward_B.view(-1, group_size), correct_B.view(-1, group_size)


def rollout_rows(step: int, drawn: StepRollouts, credit: Credit, rewards: GroupedRewards) -> list[RolloutRow]:
    """Return the rollouts of one step as rows of its Parquet file."""
    rollouts = drawn.rollouts
    columns = zip(
        drawn.row_problems,
        drawn.texts,
        drawn.grades,
        rewards.correct_PG.flatten().tolist(),
        credit.advantage_PG.flatten().tolist(),
        rollouts.n_tokens_B.tolist(),
        rollouts.truncated_B.tolist(),
        rollouts.logp_sum_B.tolist(),
        strict=True,
    )
    return [
        RolloutRow(
            step=step,
            problem_id=problem.problem_id,
            sample_index=position % rollouts.group_size,
            prompt=problem.prompt,
            response=text,
            reward=grade.reward,
            correct=correct,
            state=grade.state,
            advantage=advantage,
            n_tokens=n_tokens,
            truncated=truncated,
            logp_sum=logp_sum,
        )
        for position, (problem, text, grade, correct, advantage, n_tokens, truncated, logp_sum) in enumerate(columns)
    ]


def _strip_padding(rollouts: RolloutBatch) -> list[list[int]]:
    ids, lengths = rollouts.response_ids_BT.tolist(), rollouts.n_tokens_B.tolist()
    return [row[:length] for row, length in zip(ids, lengths, strict=True)]
