"""Inner products of per-row gradients of one parameter, without all of them in memory at one time.

Two ways, of equal result. *Materialised*: form the gradients of a few rows of the parameter at a time, add their
products, drop them. *Tokens*: ⟨Σ_t l_t ⊗ r_t, Σ_s l_s ⊗ r_s⟩ = Σ_ts ⟨l_t, l_s⟩⟨r_t, r_s⟩, which forms no gradient and
costs the square of the tokens: cheaper for large matrices under short responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from diagnostics.kernel.pieces import Outer, Piece
from diagnostics.kernel.rows import Pairs

#: Columns whose products are summed in float32 before they go to float64.
_COLUMNS_PER_SUM = 1 << 16
#: Rows of a kernel whose products are formed together.
_LEAST_STRIPE = 16
#: Gradients that exist at one time on a CPU: few enough to stay in its cache between being formed and multiplied.
_GRADIENT_BYTES = 1 << 24
#: Passing over the products of two tokens costs as much as so many of their multiplications.
_MULTIPLICATIONS_PER_PASS = 60
#: Forming and reading a number of a gradient, likewise.
_MULTIPLICATIONS_PER_NUMBER = 30


class KernelSum:
    """The kernel as it adds up over parameters, in float64, and the part of the certificate that each gave.

    ``sign_N`` and ``other_sign_N`` are the certificate's signs on the two sides, 0 for rows it leaves out.
    """

    def __init__(self, pairs: Pairs, sign_N: Tensor, other_sign_N: Tensor) -> None:
        self._rows = slice(0, pairs.row_end)
        self._columns = slice(pairs.column_start, len(pairs.rows))
        self._sign_R = sign_N[self._rows]
        self._sign_C = other_sign_N[self._columns]
        self._square = pairs.square
        self.n_rows = len(pairs.rows)
        n_left, n_right = len(self._sign_R), len(self._sign_C)
        self.kernel_RC = torch.zeros(n_left, n_right, dtype=torch.float64, device=sign_N.device)
        #: ‖∇ log π‖² of every row, which the kernel of two different sides does not hold.
        self.square_N = torch.zeros(self.n_rows, dtype=torch.float64, device=sign_N.device)
        self.certified: dict[str, float] = {}
        self._room = torch.empty(0, device=sign_N.device)

    def add(self, name: str, pieces: Sequence[Piece], shape: tuple[int, int], *, workspace_bytes: int) -> None:
        """Add the products of the gradients of parameter ``name``, or of some rows of it, which ``pieces`` sum to.

        A parameter that is used twice, such as a tied embedding, has pieces of both uses: they are summed before they
        are multiplied.
        """
        pieces, shape = _used_tokens_only(pieces, shape)
        before_RC = self.kernel_RC.clone()
        if self._tokens_are_cheaper(pieces, shape, workspace_bytes):
            self._add_by_tokens([piece for piece in pieces if isinstance(piece, Outer)], workspace_bytes)
        else:
            self._add_materialised(pieces, shape, workspace_bytes)
        part = self._sign_R @ (self.kernel_RC - before_RC) @ self._sign_C
        self.certified[name] = self.certified.get(name, 0.0) + float(part)

    def _add_materialised(self, pieces: Sequence[Piece], shape: tuple[int, int], workspace_bytes: int) -> None:
        n_out, n_in = shape
        of_an_entry = 4 * self.n_rows * n_in
        on_cpu = self.kernel_RC.device.type == "cpu"
        most = max(1, (min(workspace_bytes, _GRADIENT_BYTES) if on_cpu else workspace_bytes) // of_an_entry)
        for first in range(0, n_out, most):
            last = min(first + most, n_out)
            gradient_NOI = self._room_for(self.n_rows, last - first, n_in)
            written: set[int] = set()
            for piece in sorted(pieces, key=_adds_only):
                piece.add_to(gradient_NOI, first, last, written)
            if len(written) < self.n_rows:
                gradient_NOI[sorted(set(range(self.n_rows)) - written)] = 0
            for part_ND in gradient_NOI.view(self.n_rows, -1).split(_COLUMNS_PER_SUM, dim=1):
                self._add_columns(part_ND)

    def _room_for(self, n_rows: int, n_out: int, n_in: int) -> Float[Tensor, "row out in"]:
        """Memory that holds anything; always the same, as fresh memory costs as much as what is done in it."""
        n_numbers = n_rows * n_out * n_in
        if n_numbers > len(self._room):
            self._room = torch.empty(n_numbers, device=self.kernel_RC.device)
        return self._room[:n_numbers].view(n_rows, n_out, n_in)

    def _add_columns(self, gradient_ND: Float[Tensor, "row parameter"]) -> None:
        if not self._square:
            self.kernel_RC += (gradient_ND[self._rows] @ gradient_ND[self._columns].T).double()
            self.square_N += gradient_ND.square().sum(dim=1).double()
            return
        # a square kernel is its own mirror image: stripes up to the diagonal spare three eighths of the products
        n_stripe = max(_LEAST_STRIPE, -(-self.n_rows // 4))
        for start in range(0, self.n_rows, n_stripe):
            end = min(start + n_stripe, self.n_rows)
            product_SN = (gradient_ND[start:end] @ gradient_ND[:end].T).double()
            self.kernel_RC[start:end, :end] += product_SN
            self.kernel_RC[:start, start:end] += product_SN[:, :start].T
            self.square_N[start:end] += product_SN[:, start:].diagonal()

    def _tokens_are_cheaper(self, pieces: Sequence[Piece], shape: tuple[int, int], workspace_bytes: int) -> bool:
        if not all(isinstance(piece, Outer) for piece in pieces):
            return False
        outers = [piece for piece in pieces if isinstance(piece, Outer)]
        n_all = sum(len(left) for piece in outers for left in piece.lefts)
        n_dense = sum(len(left) for piece in outers for left in piece.lefts if not piece.one_hot)
        n_out, n_in = shape
        copied_bytes = 4 * (n_dense * n_out + n_all * n_in)
        if copied_bytes + 16 * n_all > workspace_bytes:
            return False
        by_tokens = 2.0 * n_dense**2 * n_out + n_all**2 * (2.0 * n_in + _MULTIPLICATIONS_PER_PASS)
        materialised = (
            n_out * n_in * (2.0 * n_dense + 2.0 * self.kernel_RC.numel() + _MULTIPLICATIONS_PER_NUMBER * self.n_rows)
        )
        return by_tokens < materialised

    def _add_by_tokens(self, pieces: Sequence[Outer], workspace_bytes: int) -> None:
        kernel_NN = torch.zeros(self.n_rows, self.n_rows, dtype=torch.float64, device=self.kernel_RC.device)
        sides = list(_token_lists(pieces))
        for left in sides:
            for right in sides:
                _add_token_products(kernel_NN, left, right, workspace_bytes)
        self.kernel_RC += kernel_NN[self._rows, self._columns]
        self.square_N += kernel_NN.diagonal()


class _Tokens:
    """All tokens of pieces of one sort: the vectors or token numbers on the left, those on the right, their rows."""

    def __init__(self, pieces: Sequence[Outer]) -> None:
        self.left = torch.cat([left for piece in pieces for left in piece.lefts])
        self.right_TI = torch.cat([right for piece in pieces for right in piece.rights])
        counts = torch.tensor([len(left) for piece in pieces for left in piece.lefts])
        members = torch.tensor([member for piece in pieces for member in piece.members])
        self.member_T: Int[Tensor, " token"] = members.repeat_interleave(counts).to(self.left.device)


def _token_lists(pieces: Sequence[Outer]) -> Iterator[_Tokens]:
    for one_hot in (False, True):
        of_a_sort = [piece for piece in pieces if piece.one_hot is one_hot]
        if of_a_sort:
            yield _Tokens(of_a_sort)


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
    return isinstance(piece, Outer) and piece.one_hot


def _used_tokens_only(pieces: Sequence[Piece], shape: tuple[int, int]) -> tuple[Sequence[Piece], tuple[int, int]]:
    """An embedding that is nothing else has no gradient but at the tokens that occur."""
    outers = [piece for piece in pieces if isinstance(piece, Outer) and piece.one_hot]
    if len(outers) < len(pieces):
        return pieces, shape
    used, number_T = torch.cat([left for piece in outers for left in piece.lefts]).unique(return_inverse=True)
    numbers = iter(number_T.split([len(left) for piece in outers for left in piece.lefts]))
    renumbered = [Outer(piece.members, tuple(next(numbers) for _ in piece.lefts), piece.rights) for piece in outers]
    return renumbered, (len(used), shape[1])
