"""Text of single tokens, by the tokenizer next to a checkpoint. Does not import transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from oversharp.diagnostics.series.tokenizers import tokenizer_folders

_FILE = "tokenizer.json"


def token_pieces(token_ids: Sequence[int], checkpoint_path: Path) -> tuple[tuple[str, ...], str]:
    """Return the text of each token and "", or no texts and the reason.

    A character that spans several tokens belongs to the last of them. Special tokens are included by name. The reason
    contains no path, because a shared copy may include it.
    """
    tokenizer_path = next(
        (folder / _FILE for folder in tokenizer_folders(checkpoint_path, None) if (folder / _FILE).is_file()), None
    )
    if tokenizer_path is None:
        return (), f"token texts are unknown: {checkpoint_path.name} has no {_FILE}"
    try:
        tokenizer = _load_tokenizer(tokenizer_path, tokenizer_path.stat().st_mtime_ns)
        return _decode_tokens(tokenizer, token_ids), ""
    # the tokenizers library raises plain Exception for an invalid file
    except Exception as error:  # noqa: BLE001
        return (
            (),
            f"token texts are unknown: {_FILE} of {checkpoint_path.name} cannot be loaded ({type(error).__name__})",
        )


def _decode_tokens(tokenizer: Any, token_ids: Sequence[int]) -> tuple[str, ...]:
    from tokenizers.decoders import DecodeStream

    stream = DecodeStream(skip_special_tokens=False)
    return tuple(stream.step(tokenizer, int(token_id)) or "" for token_id in token_ids)


@lru_cache(maxsize=4)
def _load_tokenizer(path: Path, _changed: int) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))
