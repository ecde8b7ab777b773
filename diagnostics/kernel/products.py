"""Inner products of per-row gradients of one parameter, without all of them in memory at one time.

Two ways, of equal result. *Materialised*: form the gradients of a few rows of the parameter at a time, add their
products, drop them. *Tokens*: ⟨Σ_t l_t ⊗ r_t, Σ_s l_s ⊗ r_s⟩ = Σ_ts ⟨l_t, l_s⟩⟨r_t, r_s⟩, which forms no gradient and
costs the square of the tokens: cheaper for large matrices under short responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from oversharp.diagnostics.kernel.pieces import Direct, OneHot, Outer, Piece
from oversharp.diagnostics.kernel.rows import Pairs

#: Columns whose products are summed in float32 before they go to float64: in a longer sum small ones are lost.
_COLUMNS_PER_SUM = 1 << 11
#: Rows of a kernel whose products are formed together.
_LEAST_STRIPE = 16
#: Gradients that exist at one time on a CPU: few enough to stay in its cache between being formed and multiplied.
_GRADIENT_BYTES = 1 << 22
#: Passing over the products of two tokens costs as much as so many of their multiplications.
_MULTIPLICATIONS_PER_PASS = 60
#: Forming and reading a number of a gradient, likewise.
_MULTIPLICATIONS_PER_NUMBER = 30


class KernelSum:
    """The kernel as it adds up over parameters, in float64, and the sum of all entries that each parameter gave."""

    def __init__(self, pairs: Pairs, device: torch.device) -> None:
        self._rows = slice(0, pairs.row_end)
        self._columns = slice(pairs.column_start, len(pairs.rows))
        self._square = pairs.square
        self.n_rows = len(pairs.rows)
        n_columns = self.n_rows - pairs.column_start
        self.kernel_RC = torch.zeros(pairs.row_end, n_columns, dtype=torch.float64, device=device)
        #: ‖∇ log π‖² of every row: of two different sides, the kernel does not hold it.
        self.square_N = self.kernel_RC.diagonal() if self._square else self.kernel_RC.new_zeros(self.n_rows)
        self.sums: dict[str, float] = {}
        self._total = 0.0
        self._room = torch.empty(0, device=device)

    def scale(self) -> float:
        """The mean of ‖Σ_i c_i ∇ log π_i‖·‖Σ_j c_j ∇ log π_j‖ over random signs, i of the rows and j of the columns."""
        return float((self.square_N[self._rows].sum() * self.square_N[self._columns].sum()).sqrt())

    def scale_of_row(self, row: int) -> float:
        """The same for one row of the kernel and all of its columns."""
        return float((self.square_N[row] * self.square_N[self._columns].sum()).sqrt())

    def largest_row(self) -> int | None:
        """The row of the kernel with the largest gradient; None if all gradients are 0."""
        square_R = self.square_N[self._rows]
        return int(square_R.argmax()) if bool(square_R.any()) else None

    def add(self, name: str, pieces: Sequence[Piece], shape: tuple[int, int], *, workspace_bytes: int) -> None:
        """Add the products of the gradients of parameter ``name``, or of some rows of it, which ``pieces`` sum to.

        A parameter that is used twice, such as a tied embedding, has pieces of both uses: they are summed before they
        are multiplied.
        """
        pieces, shape = _used_tokens_only(pieces, shape)
        if self._tokens_are_cheaper(pieces, shape, workspace_bytes):
            self._add_by_tokens([piece for piece in pieces if not isinstance(piece, Direct)], workspace_bytes)
        else:
            self._add_materialised(pieces, shape, workspace_bytes)
        before, self._total = self._total, float(self.kernel_RC.sum())
        self.sums[name] = self.sums.get(name, 0.0) + self._total - before

    def _add_materialised(self, pieces: Sequence[Piece], shape: tuple[int, int], workspace_bytes: int) -> None:
        n_out, n_in = shape
        of_an_entry = 4 * self.n_rows * n_in
        on_cpu = self.kernel_RC.device.type == "cpu"
        most = max(1, (min(workspace_bytes, _GRADIENT_BYTES) if on_cpu else workspace_bytes) // of_an_entry)
        for first in range(0, n_out, most):
            last = min(first + most, n_out)
            self._add_columns(_form(pieces, self._room_for(self.n_rows, last - first, n_in), first))

    def _room_for(self, n_rows: int, n_out: int, n_in: int) -> Float[Tensor, "row out in"]:
        """Memory that holds anything; always the same, as fresh memory costs as much as what is done in it."""
        n_numbers = n_rows * n_out * n_in
        if n_numbers > len(self._room):
            self._room = torch.empty(n_numbers, device=self.kernel_RC.device)
        return self._room[:n_numbers].view(n_rows, n_out, n_in)

    def _add_columns(self, gradient_ND: Float[Tensor, "row parameter"]) -> None:
        if not self._square:
            self.kernel_RC += _products(gradient_ND[self._rows], gradient_ND[self._columns])
            self.square_N += torch.linalg.vector_norm(gradient_ND, dim=1, dtype=torch.float64).square()
            return
        # a square kernel is its own mirror image: stripes up to the diagonal spare three eighths of the products
        n_stripe = max(_LEAST_STRIPE, -(-self.n_rows // 4))
        for start in range(0, self.n_rows, n_stripe):
            end = min(start + n_stripe, self.n_rows)
            product_SN = _products(gradient_ND[start:end], gradient_ND[:end])
            self.kernel_RC[start:end, :end] += product_SN
            if start:
                self.kernel_RC[:start, start:end] += product_SN[:, :start].T

    def _tokens_are_cheaper(self, pieces: Sequence[Piece], shape: tuple[int, int], workspace_bytes: int) -> bool:
        if any(isinstance(piece, Direct) for piece in pieces):
            return False
        outers = [piece for piece in pieces if isinstance(piece, Outer)]
        n_dense = sum(left.shape[0] * left.shape[1] for piece in outers for left in piece.lefts)
        n_all = n_dense + sum(len(piece.token_T) for piece in pieces if isinstance(piece, OneHot))
        n_out, n_in = shape
        copied_bytes = 4 * (n_dense * n_out + n_all * n_in)
        if copied_bytes + 16 * n_all > workspace_bytes:
            return False
        by_tokens = 2.0 * n_dense**2 * n_out + n_all**2 * (2.0 * n_in + _MULTIPLICATIONS_PER_PASS)
        materialised = (
            n_out * n_in * (2.0 * n_dense + 2.0 * self.kernel_RC.numel() + _MULTIPLICATIONS_PER_NUMBER * self.n_rows)
        )
        return by_tokens < materialised

    def _add_by_tokens(self, pieces: Sequence[Outer | OneHot], workspace_bytes: int) -> None:
        kernel_NN = torch.zeros(self.n_rows, self.n_rows, dtype=torch.float64, device=self.kernel_RC.device)
        sides = list(_token_lists(pieces))
        for left in sides:
            for right in sides:
                _add_token_products(kernel_NN, left, right, workspace_bytes)
        self.kernel_RC += kernel_NN[self._rows, self._columns]
        if not self._square:
            self.square_N += kernel_NN.diagonal()


def _form(pieces: Sequence[Piece], gradient_NOI: Tensor, first: int) -> Float[Tensor, "row parameter"]:
    """Write the sum of ``pieces`` to ``gradient_NOI``, from entry ``first`` of the parameter's first axis on."""
    n_rows, n_out, _ = gradient_NOI.shape
    written: set[int] = set()
    for piece in sorted(pieces, key=_adds_only):
        piece.add_to(gradient_NOI, first, first + n_out, written)
    if len(written) < n_rows:
        gradient_NOI[sorted(set(range(n_rows)) - written)] = 0
    return gradient_NOI.view(n_rows, -1)


def _products(one_RD: Tensor, other_CD: Tensor) -> Float[Tensor, "row column"]:
    """Inner products in float64 of sums of ``_COLUMNS_PER_SUM`` products in float32."""
    n_columns = one_RD.shape[1]
    whole = n_columns // _COLUMNS_PER_SUM * _COLUMNS_PER_SUM
    if not whole:
        return (one_RD @ other_CD.T).double()
    one_SRD, other_SCD = (
        side[:, :whole].unflatten(1, (-1, _COLUMNS_PER_SUM)).transpose(0, 1) for side in (one_RD, other_CD)
    )
    product_RC = torch.bmm(one_SRD, other_SCD.transpose(1, 2)).sum(dim=0, dtype=torch.float64)
    if whole < n_columns:
        product_RC += one_RD[:, whole:] @ other_CD[:, whole:].T
    return product_RC


@dataclass(frozen=True, eq=False)
class _Tokens:
    """All tokens of pieces of one sort: the vectors or token numbers on the left, those on the right, their rows."""

    left: Tensor
    right_TI: Float[Tensor, "token in"]
    member_T: Int[Tensor, " token"]


def _token_lists(pieces: Sequence[Outer | OneHot]) -> Iterator[_Tokens]:
    outers = [piece for piece in pieces if isinstance(piece, Outer)]
    if outers:
        lefts = [left for piece in outers for left in piece.lefts]
        members = torch.tensor([member for piece in outers for member in piece.members])
        counts = torch.tensor([left.shape[1] for left in lefts for _ in left])
        yield _Tokens(
            torch.cat([left.flatten(0, 1) for left in lefts]),
            torch.cat([right.flatten(0, 1) for piece in outers for right in piece.rights]),
            members.repeat_interleave(counts).to(lefts[0].device),
        )
    one_hots = [piece for piece in pieces if isinstance(piece, OneHot)]
    if one_hots:
        yield _Tokens(
            torch.cat([piece.token_T for piece in one_hots]),
            torch.cat([piece.right_TI for piece in one_hots]),
            torch.cat([piece.member_T for piece in one_hots]),
        )


def _add_token_products(kernel_NN: Tensor, one: _Tokens, other: _Tokens, workspace_bytes: int) -> None:
    n_rows = len(kernel_NN)
    n_block = max(1, workspace_bytes // (16 * len(other.left)))
    multiply = _left_products(one.left, other.left)
    for start in range(0, len(one.left), n_block):
        block = slice(start, start + n_block)
        product_TS = one.right_TI[block] @ other.right_TI.T
        product_TS *= multiply(block)
        sum_TN = product_TS.new_zeros(len(product_TS), n_rows).index_add_(1, other.member_T, product_TS)
        kernel_NN.index_add_(0, one.member_T[block], sum_TN.double())


def _left_products(one: Tensor, other: Tensor) -> Callable[[slice], Float[Tensor, "token other_token"]]:
    if one.is_floating_point() and other.is_floating_point():
        return lambda block: one[block] @ other.T
    if one.is_floating_point():
        return lambda block: one[block][:, other]
    if other.is_floating_point():
        return lambda block: other.T[one[block]]
    return lambda block: one[block][:, None] == other[None]


def _adds_only(piece: Piece) -> bool:
    """Whether it must come after those that can write a gradient, as it can only be added to one."""
    return isinstance(piece, OneHot)


def _used_tokens_only(pieces: Sequence[Piece], shape: tuple[int, int]) -> tuple[Sequence[Piece], tuple[int, int]]:
    """An embedding that is nothing else has no gradient but at the tokens that occur."""
    one_hots = [piece for piece in pieces if isinstance(piece, OneHot)]
    if len(one_hots) < len(pieces):
        return pieces, shape
    used, number_T = torch.cat([piece.token_T for piece in one_hots]).unique(return_inverse=True)
    numbers = number_T.split([len(piece.token_T) for piece in one_hots])
    renumbered = [replace(piece, token_T=token_T) for piece, token_T in zip(one_hots, numbers, strict=True)]
    return renumbered, (len(used), shape[1])
