"""prime-rl: ``RUN/rollouts/step_{N}/{train,eval}/{all,effective}/traces.jsonl``.

Each line is an episode of ``verifiers``: ``env``, ``task``, ``ok``, ``errors`` and ``traces``, one per agent. A trace
is a graph of messages. In its last branch, the messages before the model's first message are the prompt, the rest is
the response. If branches of sub-agents come after the model's branch, its reply (``root_reply``) ends the branch. With
several messages or tool calls the response is a trajectory. A turn has the number of its tokens; a sampled turn also
has the sum of its log-probabilities, and whether its mask selects any token for the loss. An assistant message that was
not sampled is context. Earlier branches, such as those before a compaction, are not read. Failed calls are not marked.
Traces of agents that are not trained, such as judges, are skipped. Failed episodes and traces are faults.
The score is prime-rl's reward, the weighted sum of the named rewards; --reward chooses one of them, or a metric. The
gold answer is the task's ``answer``, the problem's id its ``idx`` or ``name``.

``train`` and ``eval`` are separate series. So are ``all`` (all finished episodes) and ``effective`` (episodes used for
training: no failed ones, no groups rejected by the curriculum), because they share samples. The step is the folder's.
The run is asynchronous, so the sampled policy may be some steps older.

Log-probabilities are those of the inference engine. Entropies are the trainer's. They are in newer traces, or in
``RUN/token_exports/step_{N}/rank_{R}.jsonl`` if that folder contains ``STABLE``. Batch packing changes the order of
samples, so exported sequences are matched by their tokens. Sequences that the trainer truncated have no match. Both
log-probabilities and entropies refer to the sampled distribution. So they are used only if every call was at
temperature 1 without truncation. Exports have neither text nor reward, so they are not samples.

Source: prime-rl 0.8.0 (559b447), ``FileMonitor.log_episodes`` and ``TokenExporter``; verifiers a60a606 and 0.4.1.dev86,
``Episode.to_record``.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    finite,
    get_number,
    get_optional_text,
    get_reward,
    get_text,
    get_whole,
    inner,
    join_chat,
    parse_step_name,
)
from oversharp.diagnostics.ingest.formats.rows import first_record, records
from oversharp.diagnostics.ingest.formats.turns import as_trajectory, read_messages
from oversharp.diagnostics.trajectories.record import Turns, model_text

_KNOWN_BY = frozenset({"traces", "task", "ok"})
_EXPORTED = frozenset({"token_ids", "loss_mask", "entropy"})
_TRUNCATED = frozenset({
    "max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "max_turn_tokens", "context_length",
    "compaction_failed",
})  # fmt: skip


class _TracesPlace(NamedTuple):
    """Run, kind, subset and step in the path of a traces file."""

    run: Path
    kind: str
    subset: str
    step: int


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a record has the fields of an episode."""
    return record.keys() >= _KNOWN_BY and isinstance(record["traces"], list)


def place(path: Path) -> FilePlace:
    """Return the step, and as run the run's name with kind and subset of the episodes."""
    where = _where(path)
    return (
        FilePlace()
        if where is None
        else FilePlace(run=f"{where.run.name} {where.kind} {where.subset}", step=where.step)
    )


def settings(path: Path) -> Mapping[str, Any]:
    """Return temperature and top-p of the first call that has them."""
    for record in records(path):
        if not isinstance(record, Fault):
            for trace in _objects(record[1].get("traces")):
                for call in _objects(trace.get("calls")):
                    sampling = _sampling(call)
                    if sampling:
                        numbers = {name: finite(sampling.get(name)) for name in ("temperature", "top_p")}
                        return {name: value for name, value in numbers.items() if value is not None}
    return {}


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per trace. A file of exported tokens has no samples."""
    if first_record(path).keys() >= _EXPORTED:
        return
    where = _where(path)
    entropies = {} if where is None else _exported_entropies(where)
    for record in records(path):
        if isinstance(record, Fault):
            yield record
            continue
        line, episode = record
        traces = _objects(episode.get("traces"))
        if not traces:
            yield Fault(line, _failure(episode, "no traces"))
        step = None if where is None else where.step
        if step is None:
            step = _dispatched(episode)
        for trace in traces:
            if inner(trace, "agent").get("trainable") is not False:
                try:
                    yield _sample(line, step, episode, trace, entropies, options.reward)
                except BadField as bad:
                    yield Fault(line, str(bad))


# ---------------------------------------------------------------- traces


def _sample(
    line: int,
    step: int | None,
    episode: Mapping[str, Any],
    trace: Mapping[str, Any],
    entropies: Mapping[bytes, float],
    reward_name: str | None,
) -> Recorded:
    if trace.get("ok") is not True:
        raise BadField(_failure(trace, "its rollout failed"))
    if trace.get("dropped") is not None:
        raise BadField("its rollout was dropped by the environment")
    data = inner(inner(trace, "task"), "data")
    path = _model_branch(trace)
    first = next((i for i, node in enumerate(path) if node.get("sampled") is True), len(path))
    drawn = [node for node in path if node.get("sampled") is True]
    calls = [call for call in _objects(trace.get("calls")) if call.get("error") is None]
    plain = bool(calls) and all(_is_untruncated(_sampling(call)) for call in calls)
    n_tokens = sum(sum(map(bool, _list(node.get("mask")))) for node in drawn)
    env, reward = inner(episode, "env"), _reward(trace, reward_name)
    turns = as_trajectory(tuple(turn for node in path[first:] for turn in _read_node(node, plain=plain)))
    return Recorded(
        line=line,
        prompt=_conversation(path[:first], "prompt") if first else get_text(data, "prompt"),
        response=_response(trace, path[first:], rewarded=reward is not None) if turns is None else model_text(turns),
        turns=turns,
        gold=get_optional_text(data, "answer"),
        reward=reward,
        step=step,
        problem=get_optional_text(data, "idx") or get_optional_text(data, "name"),
        n_tokens=n_tokens or _n_completed(calls),
        finish_reason="length" if _is_truncated(trace, calls) else "stop",
        logp_sum=_total(drawn, "logprobs") if plain else None,
        entropy_sum=_entropy(path, drawn, entropies) if plain else None,
        task=get_optional_text(env, "name") or get_optional_text(env, "id"),
    )


def _reward(trace: Mapping[str, Any], name: str | None) -> float | None:
    rewards = inner(trace, "rewards")
    if name is not None:
        scores = rewards if name in rewards else inner(trace, "metrics")
        value = scores.get(name)
        scores = {name: value.get("score") if isinstance(value, Mapping) else value} if name in scores else {}
        return get_reward(scores, name, "")
    parts = [reward for reward in rewards.values() if isinstance(reward, Mapping)]
    pairs = [(get_number(part, "score"), get_number({"weight": 1.0, **part}, "weight")) for part in parts]
    weighted = [value * weight for value, weight in pairs if value is not None and weight is not None]
    return _sum(weighted, len(weighted))


def _model_branch(trace: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the messages from the root to the last message, or to the model's reply before branches of sub-agents."""
    nodes, reply = _objects(trace.get("nodes")), trace.get("root_reply")
    path: list[Mapping[str, Any]] = []
    replies = (i for i in range(len(nodes) - 1, -1, -1) if _is_reply(nodes[i], reply))
    index = next(replies, len(nodes) - 1) if isinstance(reply, str) else len(nodes) - 1
    while index >= 0:
        path.append(nodes[index])
        parent = nodes[index].get("parent")
        index = parent if type(parent) is int and parent < index else -1
    return path[::-1]


def _is_reply(node: Mapping[str, Any], reply: object) -> bool:
    return node.get("sampled") is True and inner(node, "message").get("content") == reply


def _read_node(node: Mapping[str, Any], *, plain: bool) -> Turns:
    """Return the turns of a message. If ``plain``, log-probabilities are those of temperature 1."""
    turns = read_messages([node.get("message")], "nodes")
    if not turns:
        return ()
    n_trained = sum(map(bool, _list(node.get("mask"))))
    if node.get("sampled") is True:
        n_tokens, logp_sum = n_trained, _total([node], "logprobs") if plain else None
    else:
        n_tokens, logp_sum = len(_list(node.get("token_ids"))), None
    is_trained = n_trained > 0 if node.get("mask") else None
    first = structs.replace(turns[0], n_tokens=n_tokens or None, logp_sum=logp_sum, is_trained=is_trained)
    return (first, *turns[1:])


def _response(trace: Mapping[str, Any], path: Sequence[Mapping[str, Any]], *, rewarded: bool) -> str:
    """Return the model's messages as text. Null contents are empty if the trace has a reward."""
    reply = trace.get("root_reply")
    if isinstance(reply, str):
        return reply
    if not path and rewarded:
        return ""
    if not path:
        raise BadField("no message of the model")
    return _conversation(path, "response", null="" if rewarded else None)


def _conversation(path: Sequence[Mapping[str, Any]], name: str, *, null: str | None = None) -> str:
    """Return the messages as one text. Null contents become the text ``null``."""
    messages = [(message.get("role"), _content(message)) for message in (inner(node, "message") for node in path)]
    return join_chat(
        [{"role": role, "content": null if content is None else content} for role, content in messages], name
    )


def _content(message: Mapping[str, Any]) -> Any:
    """Return reasoning and content as one text."""
    content, reasoning = message.get("content"), message.get("reasoning_content")
    if not isinstance(reasoning, str):
        return content
    return "\n\n".join(part for part in (reasoning, content) if isinstance(part, str) and part)


def _is_truncated(trace: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> bool:
    stopped_by = trace.get("stop_condition")
    if isinstance(stopped_by, str) and stopped_by in _TRUNCATED:
        return True
    return bool(calls) and calls[-1].get("finish_reason") == "length"


def _n_completed(calls: Sequence[Mapping[str, Any]]) -> int | None:
    counts = [get_whole(inner(call, "usage"), "completion_tokens") for call in calls]
    return sum(count for count in counts if count is not None) or None


def _failure(outcome: Mapping[str, Any], why: str) -> str:
    errors = _objects(outcome.get("errors"))
    kind = errors[-1].get("type") if errors else None
    return f"its rollout failed: {kind}" if isinstance(kind, str) else why


def _dispatched(episode: Mapping[str, Any]) -> int | None:
    step = inner(inner(episode, "run"), "work").get("step")
    return step if type(step) is int and step >= 0 else None


# ---------------------------------------------------------------- log-probabilities and entropies


def _sampling(call: Mapping[str, Any]) -> Mapping[str, Any]:
    fields = inner(call, "sampling")
    return {**inner(fields, "extra_body"), **fields}


def _is_untruncated(sampling: Mapping[str, Any]) -> bool:
    """Return whether the response was sampled at temperature 1 without top-k or top-p truncation."""
    return (
        sampling.get("temperature") == 1
        and sampling.get("top_p") in (None, 1)
        and sampling.get("top_k") in (None, 0, -1)
        and sampling.get("min_p") in (None, 0)
    )


def _total(drawn: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return the sum of a value over all sampled tokens of the nodes; None if any is missing."""
    sums = [_sum(_list(node.get(name)), sum(map(bool, _list(node.get("mask"))))) for node in drawn]
    return _sum(sums, len(sums))


def _entropy(
    path: Sequence[Mapping[str, Any]], drawn: Sequence[Mapping[str, Any]], exported: Mapping[bytes, float]
) -> float | None:
    own = _total(drawn, "entropies")
    if own is not None or not exported:
        return own
    digest = _digest([token for node in path for token in _list(node.get("token_ids"))])
    return None if digest is None else exported.get(digest)


def _exported_entropies(where: _TracesPlace) -> dict[bytes, float]:
    """Return entropy sums by hash of the tokens; empty until the trainer has marked the step as complete."""
    folder = where.run / "token_exports" / f"step_{where.step}"
    if where.kind != "train" or not (folder / "STABLE").is_file():
        return {}
    entropies: dict[bytes, float] = {}
    for file in sorted(folder.glob("rank_*.jsonl")):
        for record in records(file):
            if isinstance(record, Fault):
                continue
            tokens, mask, entropy = (_list(record[1].get(name)) for name in ("token_ids", "loss_mask", "entropy"))
            if not len(tokens) == len(mask) == len(entropy):
                continue
            drawn = [value for value, is_drawn in zip(entropy, mask, strict=True) if is_drawn]
            digest, total = _digest(tokens), _sum(drawn, len(drawn))
            if digest is not None and total is not None:
                entropies[digest] = total
    return entropies


def _digest(tokens: Sequence[Any]) -> bytes | None:
    try:
        return blake2b(array("q", tokens).tobytes(), digest_size=16).digest() if tokens else None
    except (TypeError, OverflowError):
        return None


def _sum(values: Sequence[Any], n: int) -> float | None:
    """Return the sum of ``values`` if they are exactly ``n`` finite numbers, else None."""
    if len(values) != n or not n:
        return None
    try:
        return finite(math.fsum(values))
    except (TypeError, ValueError, OverflowError):
        return None


# ---------------------------------------------------------------- shapes


def _where(path: Path) -> _TracesPlace | None:
    folders = path.absolute().parents
    if len(folders) < 5 or folders[3].name != "rollouts":
        return None
    step = parse_step_name(folders[2].name, "step_")
    return None if step is None else _TracesPlace(folders[4], folders[1].name, folders[0].name, step)


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in _list(value) if isinstance(item, Mapping)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


IMPORTER = Importer(
    name="prime_rl",
    title="prime-rl, traces of its rollouts",
    suffixes=(".jsonl",),
    recognises=recognises,
    place=place,
    read_samples=read_samples,
    settings=settings,
    untold="failed calls are not marked, and only the last branch is read",
)
