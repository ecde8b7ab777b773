"""The text of single tokens, by the tokenizer that lies beside a checkpoint; it reads no transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from oversharp.diagnostics.series.tokenizers import tokenizer_folders

_FILE = "tokenizer.json"


def token_pieces(token_ids: Sequence[int], checkpoint_path: Path) -> tuple[tuple[str, ...], str]:
    """The text that every token adds, as many as there are ids; or none, and why.

    A character that several tokens make belongs to the last of them. Special tokens are written as they are named. What
    is said names no folder but the checkpoint's own: it may be in a copy that is shared.
    """
    found = next(
        (folder / _FILE for folder in tokenizer_folders(checkpoint_path, None) if (folder / _FILE).is_file()), None
    )
    if found is None:
        return (), f"their texts are not known: no {_FILE} of {checkpoint_path.name} is here"
    try:
        tokenizer = _tokenizer(found, found.stat().st_mtime_ns)
        return _decoded(tokenizer, token_ids), ""
    # what a tokenizer file may hold, its library raises as plain Exception
    except Exception as error:  # noqa: BLE001
        return (
            (),
            f"their texts are not known: {_FILE} of {checkpoint_path.name} cannot be used ({type(error).__name__})",
        )


def _decoded(tokenizer: Any, token_ids: Sequence[int]) -> tuple[str, ...]:
    from tokenizers.decoders import DecodeStream

    stream = DecodeStream(skip_special_tokens=False)
    return tuple(stream.step(tokenizer, int(one)) or "" for one in token_ids)


@lru_cache(maxsize=4)
def _tokenizer(path: Path, _changed: int) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))
