"""Inner products of the rows' gradients of one parameter, within a memory limit.

Two methods give equal results. *Materialised* computes the gradients of a few entries of the parameter at a time, adds
their products and drops the gradients. *Tokens* uses ⟨Σ_t l_t ⊗ r_t, Σ_s l_s ⊗ r_s⟩ = Σ_ts ⟨l_t, l_s⟩⟨r_t, r_s⟩ and
computes no gradient. Its cost grows with the square of the number of tokens, so it is cheaper for large matrices and
short responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from oversharp.diagnostics.kernel.pieces import Direct, OneHot, Outer, Piece
from oversharp.diagnostics.kernel.rows import Pairs

#: Number of products that are summed in float32. These partial sums are added in float64, because longer float32 sums
#: would lose small products.
_COLUMNS_PER_SUM = 1 << 11
#: Smallest number of kernel rows in one matrix product.
_LEAST_STRIPE = 16
#: Bytes of gradients that are computed at a time on a CPU. They must stay in the CPU cache until they are multiplied.
_GRADIENT_BYTES = 1 << 22
#: Overhead per product of two tokens in the tokens method, in multiplications.
_MULTIPLICATIONS_PER_PASS = 60
#: Overhead per gradient element in the materialised method, in multiplications.
_MULTIPLICATIONS_PER_NUMBER = 30


class KernelSum:
    """Running sum of the kernel over parameters, in float64.

    ``sums`` has the sum of the kernel's entries for each parameter.
    """

    def __init__(self, pairs: Pairs, device: torch.device) -> None:
        self._rows = slice(0, pairs.row_end)
        self._columns = slice(pairs.column_start, len(pairs.rows))
        self._is_square = pairs.is_square
        self.n_rows = len(pairs.rows)
        n_columns = self.n_rows - pairs.column_start
        self.kernel_RC = torch.zeros(pairs.row_end, n_columns, dtype=torch.float64, device=device)
        #: ‖∇ log π‖² of every row. A rectangular kernel has no diagonal, so it is summed separately.
        self.square_N = self.kernel_RC.diagonal() if self._is_square else self.kernel_RC.new_zeros(self.n_rows)
        self.sums: dict[str, float] = {}
        self._total = 0.0
        self._buffer = torch.empty(0, device=device)

    def scale(self) -> float:
        """Return √(Σ_i K_ii Σ_j K_jj), over rows i and columns j.

        It is the typical ‖Σ_i c_i ∇ log π_i‖·‖Σ_j c_j ∇ log π_j‖ for random signs c.
        """
        return float((self.square_N[self._rows].sum() * self.square_N[self._columns].sum()).sqrt())

    def scale_of_row(self, row: int) -> float:
        """Return ``scale`` for one row of the kernel and all columns."""
        return float((self.square_N[row] * self.square_N[self._columns].sum()).sqrt())

    def add(self, name: str, pieces: Sequence[Piece], shape: tuple[int, int], *, workspace_bytes: int) -> None:
        """Add the products of the gradients of parameter ``name``, or of a slice of it.

        The gradients are the sum of ``pieces``. A parameter with two uses, such as a tied embedding, has pieces of both
        uses.
        """
        pieces, shape = _drop_unused_tokens(pieces, shape)
        if self._tokens_are_cheaper(pieces, shape, workspace_bytes):
            self._add_by_tokens([piece for piece in pieces if not isinstance(piece, Direct)], workspace_bytes)
        else:
            self._add_materialised(pieces, shape, workspace_bytes)
        before, self._total = self._total, float(self.kernel_RC.sum())
        self.sums[name] = self.sums.get(name, 0.0) + self._total - before

    def _add_materialised(self, pieces: Sequence[Piece], shape: tuple[int, int], workspace_bytes: int) -> None:
        n_out, n_in = shape
        entry_bytes = 4 * self.n_rows * n_in
        on_cpu = self.kernel_RC.device.type == "cpu"
        most = max(1, (min(workspace_bytes, _GRADIENT_BYTES) if on_cpu else workspace_bytes) // entry_bytes)
        for first in range(0, n_out, most):
            last = min(first + most, n_out)
            self._add_columns(_materialise(pieces, self._uninitialised(self.n_rows, last - first, n_in), first))

    def _uninitialised(self, n_rows: int, n_out: int, n_in: int) -> Float[Tensor, "row out in"]:
        """Return an uninitialised tensor from a reused buffer.

        New memory would cost as much as the products.
        """
        n_numbers = n_rows * n_out * n_in
        if n_numbers > len(self._buffer):
            self._buffer = torch.empty(n_numbers, device=self.kernel_RC.device)
        return self._buffer[:n_numbers].view(n_rows, n_out, n_in)

    def _add_columns(self, gradient_ND: Float[Tensor, "row parameter"]) -> None:
        if not self._is_square:
            self.kernel_RC += _products(gradient_ND[self._rows], gradient_ND[self._columns])
            self.square_N += torch.linalg.vector_norm(gradient_ND, dim=1, dtype=torch.float64).square()
            return
        # a square kernel is symmetric, so each stripe ends at the diagonal; that saves three eighths of the products
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
        if not self._is_square:
            self.square_N += kernel_NN.diagonal()


def _materialise(pieces: Sequence[Piece], gradient_NOI: Tensor, first: int) -> Float[Tensor, "row parameter"]:
    """Write the sum of ``pieces`` to ``gradient_NOI``.

    It starts at entry ``first`` of the parameter.
    """
    n_rows, n_out, _ = gradient_NOI.shape
    written: set[int] = set()
    # one-hot pieces come last: they add to existing gradients, while the other pieces can fill uninitialised memory
    for piece in sorted(pieces, key=lambda piece: isinstance(piece, OneHot)):
        piece.add_to(gradient_NOI, first, first + n_out, written)
    if len(written) < n_rows:
        gradient_NOI[sorted(set(range(n_rows)) - written)] = 0
    return gradient_NOI.view(n_rows, -1)


def _products(row_RD: Tensor, column_CD: Tensor) -> Float[Tensor, "row column"]:
    """Return inner products, summed in float32 and float64.

    ``_COLUMNS_PER_SUM`` products each are summed in float32. These partial sums are added in float64.
    """
    n_numbers = row_RD.shape[1]
    whole = n_numbers // _COLUMNS_PER_SUM * _COLUMNS_PER_SUM
    if not whole:
        return (row_RD @ column_CD.T).double()
    row_SRD, column_SCD = (
        side[:, :whole].unflatten(1, (-1, _COLUMNS_PER_SUM)).transpose(0, 1) for side in (row_RD, column_CD)
    )
    product_RC = torch.bmm(row_SRD, column_SCD.transpose(1, 2)).sum(dim=0, dtype=torch.float64)
    if whole < n_numbers:
        product_RC += row_RD[:, whole:] @ column_CD[:, whole:].T
    return product_RC


@dataclass(frozen=True, eq=False)
class _Tokens:
    """Tokens of all pieces of one type.

    ``left`` contains vectors (``Outer``) or token ids (``OneHot``).
    """

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


def _add_token_products(kernel_NN: Tensor, first: _Tokens, second: _Tokens, workspace_bytes: int) -> None:
    n_rows = len(kernel_NN)
    n_block = max(1, workspace_bytes // (16 * len(second.left)))
    multiply = _left_products(first.left, second.left)
    for start in range(0, len(first.left), n_block):
        block = slice(start, start + n_block)
        product_TS = first.right_TI[block] @ second.right_TI.T
        product_TS *= multiply(block)
        sum_TN = product_TS.new_zeros(len(product_TS), n_rows).index_add_(1, second.member_T, product_TS)
        kernel_NN.index_add_(0, first.member_T[block], sum_TN.double())


def _left_products(first: Tensor, second: Tensor) -> Callable[[slice], Float[Tensor, "token other_token"]]:
    if first.is_floating_point() and second.is_floating_point():
        return lambda block: first[block] @ second.T
    if first.is_floating_point():
        return lambda block: first[block][:, second]
    if second.is_floating_point():
        return lambda block: second.T[first[block]]
    return lambda block: first[block][:, None] == second[None]


def _drop_unused_tokens(pieces: Sequence[Piece], shape: tuple[int, int]) -> tuple[Sequence[Piece], tuple[int, int]]:
    """Restrict an untied embedding to the tokens that occur in the rows.

    Other tokens have gradient 0.
    """
    one_hots = [piece for piece in pieces if isinstance(piece, OneHot)]
    if len(one_hots) < len(pieces):
        return pieces, shape
    used, number_T = torch.cat([piece.token_T for piece in one_hots]).unique(return_inverse=True)
    numbers = number_T.split([len(piece.token_T) for piece in one_hots])
    renumbered = [replace(piece, token_T=token_T) for piece, token_T in zip(one_hots, numbers, strict=True)]
    return renumbered, (len(used), shape[1])
