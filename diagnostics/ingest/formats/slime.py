"""slime and miles: ``DUMP/rollout_data/{rollout}.pt`` and ``eval_{rollout}.pt``, with ``--dump-details DUMP``.

``--save-debug-rollout-data`` writes the same under any name. The file is a pickle with ``rollout_id`` and ``samples``,
each a ``Sample`` as a dict: ``prompt``, ``response``, ``label`` (the gold answer), ``reward``, ``status``,
``response_length``, ``loss_mask`` and ``rollout_log_probs``. Objects of miles in it need miles to be installed.

The reward is a number, or several by name: --reward chooses. Responses are those with status completed, or truncated;
aborted and failed ones are faults. ``n_tokens`` and ``logp_sum`` count the tokens that the model gave, not those of
tools (``loss_mask``). The log-probabilities are at the sampling temperature, which the file lacks: they count
as those at temperature 1, slime's default. The end token is taken off the response.

The step is the rollout's number: rollout N was drawn after N updates, ``eval_N`` after N + 1, but for ``eval_0`` before
any. With an evaluation after every rollout ``eval_0`` is overwritten, and nothing of the base is left. Training and
evaluation are separate series. The name of an evaluation's data set is not in the file.

Source: slime 0.3.1 (624b824), ``save_debug_rollout_data``, whose files were read; miles 31f1ca9, the same function.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    chosen_reward,
    finish_reason,
    finite,
    inner,
    numeric,
    optional_text,
    response_text,
    step_named,
    text,
    whole,
    without_end_token,
)
from oversharp.diagnostics.records.errors import ImportFileError, first_line

_ENDED = frozenset({"completed", "truncated"})


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a file is one by the first key of the pickle, which is looked at and not loaded."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
            if name is None:
                return False
            with archive.open(name) as pickle:
                return b"rollout_id" in pickle.read(64) and path.parent.name != "train_data"
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError):
        return False


def place(path: Path) -> FilePlace:
    """Return the rollout's number, and the run with the kind of its rollouts."""
    folder = path.absolute().parent
    name = folder.parent.name if folder.name == "rollout_data" else folder.name
    stem = path.stem.removeprefix("eval_")
    return FilePlace(run=f"{name} {'train' if stem == path.stem else 'eval'}", step=step_named(stem, ""))


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield every sample of the archive. Raises ``ImportFileError`` where one of several rewards has to be chosen."""
    dump = _load_pickle(path)
    samples = dump.get("samples") if isinstance(dump, Mapping) else None
    if not isinstance(samples, list):
        raise ImportFileError(f"{path}: a .pt file without samples; is it a checkpoint?")
    step = step_named(str(dump.get("rollout_id")), "")
    reward_name = options.reward or _reward_name(path, samples)
    for line, fields in enumerate(samples, start=1):
        if not isinstance(fields, Mapping):
            yield Fault(line, "a sample that is not a dict")
            continue
        try:
            yield _sample(line, step, fields, reward_name)
        except BadField as bad:
            yield Fault(line, str(bad))


def _load_pickle(path: Path) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:  # a pickle can raise anything
        first = first_line(error)
        raise ImportFileError(
            f"{path}: not a readable .pt file ({first}); cut short, or of a missing package?"
        ) from error


def _reward_name(path: Path, samples: list[Any]) -> str | None:
    """Return the only one of several rewards by name; None where the reward is a number."""
    rewards = (inner(sample, "reward") for sample in samples)
    names = list(next((reward for reward in rewards if reward), {}))
    if len(names) > 1:
        raise ImportFileError(
            f"{path}: which reward is the score? pass --reward with one of {', '.join(map(str, names))}"
        )
    return names[0] if names else None


def _sample(line: int, step: int | None, fields: Mapping[str, Any], reward_name: str | None) -> Recorded:
    status = fields.get("status")
    if not isinstance(status, str):
        raise BadField("its rollout has no status")
    if status not in _ENDED:
        raise BadField(f"its rollout is {status}")
    named = inner(fields, "reward")
    mask, n_tokens = fields.get("loss_mask"), whole(fields, "response_length")
    if isinstance(mask, list) and any(mask):
        n_tokens = sum(map(bool, mask))
    reward = chosen_reward(named, reward_name, "reward") if reward_name else numeric(fields, "reward")
    return Recorded(
        line=line,
        prompt=text(fields, "prompt"),
        response=without_end_token(response_text(fields, "response", reward)),
        gold=optional_text(fields, "label"),
        reward=reward,
        step=step,
        n_tokens=n_tokens,
        finish_reason=finish_reason(fields, "status"),
        logp_sum=_logp_sum(fields.get("rollout_log_probs"), mask, n_tokens),
        task=optional_text(inner(fields, "metadata"), "source_name"),
    )


def _logp_sum(logps: Any, mask: Any, n_tokens: int | None) -> float | None:
    """Over the model's own tokens; None where a number is missing."""
    if isinstance(logps, list) and isinstance(mask, list) and len(mask) == len(logps) and any(mask):
        logps = [logp for logp, is_own in zip(logps, mask, strict=True) if is_own]
    if not isinstance(logps, list) or len(logps) != n_tokens:
        return None
    try:
        return finite(math.fsum(logps))
    except (TypeError, ValueError, OverflowError):
        return None


IMPORTER = Importer(
    name="slime",
    title="slime and miles, dumped rollouts",
    suffixes=(".pt",),
    recognises=recognises,
    place=place,
    read_samples=read_samples,
    pickled=True,
)
