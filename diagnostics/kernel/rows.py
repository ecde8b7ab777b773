"""Validate the rows of a kernel, and put them in right-padded batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from oversharp.diagnostics.kernel.contract import KernelRow
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.errors import KernelError

#: Whether a row of tokens is a row of the kernel, a column, or both.
Segment = Literal["row", "both", "column"]
#: Largest ratio of row lengths in a band. The rows of a band are padded to the longest row.
_LENGTHS_IN_A_BAND = 1.2


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Distinct rows of tokens, and which of them are rows and columns of the kernel.

    ``rows[:row_end]`` are the kernel's rows, ``rows[column_start:]`` its columns. ``rows[column_start:row_end]`` are
    both.
    """

    rows: tuple[KernelRow, ...]
    row_end: int
    column_start: int

    @property
    def is_square(self) -> bool:
        """Whether rows and columns of the kernel are the same."""
        return self.row_end == len(self.rows) and self.column_start == 0

    def find_segment(self, member: int) -> Segment:
        """Return the segment of ``rows[member]``."""
        if member < self.column_start:
            return "row"
        return "both" if member < self.row_end else "column"


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelBatch:
    """Right-padded rows of one segment.

    Attributes:
        members: indices of the rows in ``Pairs.rows``.
        mask_BL: False for padding.
        member_T: row in this batch of each response token, row after row.
        position_T: column whose logits predict the response token.
        sign_T: the certificate's random sign of the token's row.
    """

    segment: Segment
    members: tuple[int, ...]
    rows: tuple[KernelRow, ...]
    ids_BL: Int[Tensor, "row token"]
    mask_BL: Bool[Tensor, "row token"]
    member_T: Int[Tensor, " response_token"]
    position_T: Int[Tensor, " response_token"]
    sign_T: Float[Tensor, " response_token"]

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Number of tokens of each row, without padding."""
        return tuple(map(count_tokens, self.rows))

    @cached_property
    def response_lengths(self) -> tuple[int, ...]:
        """Number of response tokens of each row."""
        return tuple(len(row.token_ids) for row in self.rows)

    @cached_property
    def bands(self) -> tuple[tuple[int, int, int], ...]:
        """Bands of consecutive rows of similar length.

        A band is (first row, row after the last, longest length).
        """
        bands, start = [], 0
        for end in range(1, len(self.rows) + 1):
            if end == len(self.rows) or self.lengths[end] > _LENGTHS_IN_A_BAND * self.lengths[start]:
                bands.append((start, end, max(self.lengths[start:end])))
                start = end
        return tuple(bands)


def count_tokens(row: KernelRow) -> int:
    """Return the number of tokens of prompt and response."""
    return len(row.prompt_ids) + len(row.token_ids)


def require_computable(loaded: LoadedModel, rows: Sequence[KernelRow], *, side: str = "row") -> None:
    """Raise ``KernelError`` for a row that is empty, exceeds the context, or has unknown tokens."""
    for number, row in enumerate(rows):
        where = f"{side} {number} of the gradient kernel"
        for part, ids in (("prompt", row.prompt_ids), ("response", row.token_ids)):
            if not ids:
                raise KernelError(f"{where}: the {part} has no tokens; leave the row out")
            foreign = next((token for token in ids if not 0 <= token < loaded.vocabulary_size), None)
            if foreign is not None:
                raise KernelError(
                    f"{where}: token {foreign} of the {part} is outside the model's vocabulary of "
                    f"{loaded.vocabulary_size:,}; the tokenizer belongs to another model"
                )
        if loaded.context_tokens is not None and count_tokens(row) > loaded.context_tokens:
            raise KernelError(
                f"{where}: {len(row.prompt_ids):,} prompt tokens and {len(row.token_ids):,} response tokens exceed the "
                f"model's context of {loaded.context_tokens:,}; leave the row out"
            )


def pair_rows(rows: Iterable[KernelRow], columns: Iterable[KernelRow]) -> Pairs:
    """Return the distinct rows of both sides, in an order independent of the input's order."""
    left, right = set(rows), set(columns)
    order = [sorted(part, key=_sort_key) for part in (left - right, left & right, right - left)]
    rows_in_order = tuple(row for part in order for row in part)
    return Pairs(rows=rows_in_order, row_end=len(left), column_start=len(order[0]))


def cut_by_length(
    rows: Sequence[KernelRow], members: Iterable[int], *, activation_bytes: tuple[int, int], memory_bytes: int
) -> list[list[int]]:
    """Return batches of rows of similar length, whose activations fit in ``memory_bytes``.

    A batch has at least one row. ``activation_bytes`` are the bytes per token, and the additional bytes per response
    token.
    """
    per_token, per_response_token = activation_bytes
    batches: list[list[int]] = [[]]
    n_responses = 0
    for member in sorted(members, key=lambda member: _sort_key(rows[member])):
        row = rows[member]
        rectangle = (len(batches[-1]) + 1) * count_tokens(row)  # sorted by length, so this row is the longest
        n_responses += len(row.token_ids)
        needed_bytes = rectangle * per_token + n_responses * per_response_token
        if batches[-1] and needed_bytes > memory_bytes:
            batches.append([])
            n_responses = len(row.token_ids)
        batches[-1].append(member)
    return [batch for batch in batches if batch]


def make_batch(loaded: LoadedModel, pairs: Pairs, sign_N: Float[Tensor, " row"], members: Sequence[int]) -> KernelBatch:
    """Return the rows at ``members``, all of one segment, as a padded batch on the device."""
    chosen = tuple(pairs.rows[member] for member in members)
    lengths = [count_tokens(row) for row in chosen]
    width = max(lengths)
    ids = [
        [*row.prompt_ids, *row.token_ids, *[loaded.pad_id] * (width - length)]
        for row, length in zip(chosen, lengths, strict=True)
    ]
    member_T = [place for place, row in enumerate(chosen) for _ in row.token_ids]
    position_T = [position for row in chosen for position in range(len(row.prompt_ids) - 1, count_tokens(row) - 1)]
    sign_B = sign_N[list(members)].float()
    place_T = torch.tensor(member_T, device=loaded.device)
    return KernelBatch(
        segment=pairs.find_segment(members[0]),
        members=tuple(members),
        rows=chosen,
        ids_BL=torch.tensor(ids, device=loaded.device),
        mask_BL=(torch.arange(width) < torch.tensor(lengths)[:, None]).to(loaded.device),
        member_T=place_T,
        position_T=torch.tensor(position_T, device=loaded.device),
        sign_T=sign_B[place_T],
    )


def _sort_key(row: KernelRow) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return count_tokens(row), row.prompt_ids, row.token_ids
