"""slime and miles: ``DUMP/rollout_data/{rollout}.pt`` and ``eval_{rollout}.pt``.

``--dump-details DUMP`` writes these files; ``--save-debug-rollout-data`` writes the same content under any name. Each
file is a pickle with ``rollout_id`` and ``samples``. A sample is a ``Sample`` as a dict: ``prompt``, ``response``,
``label`` (the gold answer), ``reward``, ``status``, ``response_length``, ``loss_mask`` and ``rollout_log_probs``. Files
with objects of miles can only be read if miles is installed. The reward is a number, or several by name, of which
--reward chooses one. Samples are used if their status is completed or truncated; aborted and failed ones are faults.

``n_tokens`` and ``logp_sum`` are over the model's tokens (``loss_mask``), without tokens of tools. The
log-probabilities are at the sampling temperature, which is not recorded: slime's default 1 is assumed. The end token is
removed from the response. A response with borders of turns or calls of Qwen's template is a trajectory, with results
matched by order; calls in another syntax stay text.

The step is the rollout's number. Rollout N was sampled after N updates. ``eval_N`` was sampled after N + 1 updates,
except ``eval_0``, which is of the base. With an evaluation after every rollout, ``eval_0`` is overwritten, so that
samples of the base are lost. Training and evaluation are separate series. The data set of an evaluation is not
recorded.

Source: slime 0.3.1 (624b824) and miles 31f1ca9, ``save_debug_rollout_data``, tested with files of slime.
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
    finite,
    get_finish_reason,
    get_number,
    get_optional_text,
    get_response,
    get_reward,
    get_text,
    get_whole,
    inner,
    parse_step_name,
    remove_end_token,
)
from oversharp.diagnostics.ingest.formats.turns import transcript_turns
from oversharp.diagnostics.records.errors import ImportFileError, first_line
from oversharp.diagnostics.trajectories.record import model_text

_ENDED = frozenset({"completed", "truncated"})


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a file is a rollout dump.

    Only the first key of the pickle is read, without loading it.
    """
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
    """Return the rollout's number as step, and the run with ``train`` or ``eval``."""
    folder = path.absolute().parent
    name = folder.parent.name if folder.name == "rollout_data" else folder.name
    stem = path.stem.removeprefix("eval_")
    return FilePlace(run=f"{name} {'train' if stem == path.stem else 'eval'}", step=parse_step_name(stem, ""))


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield every sample of the file.

    Raises ``ImportFileError`` if there are several rewards and the user chose none.
    """
    dump = _load_pickle(path)
    samples = dump.get("samples") if isinstance(dump, Mapping) else None
    if not isinstance(samples, list):
        raise ImportFileError(f"{path}: this .pt file has no samples; it may be a checkpoint")
    step = parse_step_name(str(dump.get("rollout_id")), "")
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
    except Exception as error:  # unpickling can raise any exception
        first = first_line(error)
        raise ImportFileError(
            f"{path}: not a readable .pt file ({first}); copy it again, or install the missing package"
        ) from error


def _reward_name(path: Path, samples: list[Any]) -> str | None:
    """Return the name of the only named reward; None if the reward is a plain number."""
    rewards = (inner(sample, "reward") for sample in samples)
    names = list(next((reward for reward in rewards if reward), {}))
    if len(names) > 1:
        raise ImportFileError(f"{path}: has several rewards; pass --reward with one of {', '.join(map(str, names))}")
    return names[0] if names else None


def _sample(line: int, step: int | None, fields: Mapping[str, Any], reward_name: str | None) -> Recorded:
    status = fields.get("status")
    if not isinstance(status, str):
        raise BadField("its rollout has no status")
    if status not in _ENDED:
        raise BadField(f"its rollout is {status}")
    named = inner(fields, "reward")
    mask, n_tokens = fields.get("loss_mask"), get_whole(fields, "response_length")
    if isinstance(mask, list) and any(mask):
        n_tokens = sum(map(bool, mask))
    reward = get_reward(named, reward_name, "reward") if reward_name else get_number(fields, "reward")
    response = remove_end_token(get_response(fields, "response", reward))
    turns = transcript_turns(response)
    return Recorded(
        line=line,
        prompt=get_text(fields, "prompt"),
        response=response if turns is None else model_text(turns),
        turns=turns,
        gold=get_optional_text(fields, "label"),
        reward=reward,
        step=step,
        n_tokens=n_tokens,
        finish_reason=get_finish_reason(fields, "status"),
        logp_sum=_logp_sum(fields.get("rollout_log_probs"), mask, n_tokens),
        task=get_optional_text(inner(fields, "metadata"), "source_name"),
    )


def _logp_sum(logps: Any, mask: Any, n_tokens: int | None) -> float | None:
    """Return the sum of log-probabilities over the model's tokens; None if a number is missing."""
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
    untold="results are matched by order; tokens and masks are not split by turn",
)
