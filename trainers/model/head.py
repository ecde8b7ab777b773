"""Compute log-probabilities and entropies from hidden states, one chunk of logits at a time.

With a vocabulary of 150,000 tokens, the logits of a batch need more memory than everything else in a step. So only one
chunk of logits exists at a time, and the backward pass computes it again. All sums are in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from oversharp.diagnostics.models.cached_passes import innermost
from oversharp.diagnostics.models.devices import elements_per_chunk

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Number of logits per chunk on a CPU, which are 64 MiB in float32. The forward pass has two tensors of this size at a
#: time, the backward pass three.
_LOGITS_PER_CHUNK = 1 << 24


@dataclass(frozen=True, kw_only=True)
class LogitTransform:
    """Transform of the head's output z to logits: ``scale`` · z, or ``cap`` · tanh(``scale`` · z / ``cap``).

    Granite models divide their logits by a constant, Cohere models multiply them, and Gemma models cap them.
    """

    scale: float = 1.0
    cap: float | None = None

    def apply(self, z: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Return the logits.

        >>> LogitTransform(scale=0.5).apply(torch.tensor([4.0])), LogitTransform(cap=2.0).apply(torch.tensor([1e3]))
        (tensor([2.]), tensor([2.]))
        """
        if self.scale != 1:
            z = z * self.scale
        return z if self.cap is None else (z / self.cap).tanh().mul_(self.cap)


def choose_chunk_logits(device: torch.device) -> int:
    """Return the number of logits per chunk for a device."""
    return elements_per_chunk(device, _LOGITS_PER_CHUNK)


@dataclass(frozen=True, kw_only=True)
class ResponseHead:
    """Parts of a causal language model.

    ``trunk`` computes hidden states. The linear layer ``output`` maps them to z, and ``transform`` maps z to logits.
    """

    trunk: nn.Module
    output: nn.Linear
    transform: LogitTransform


def find_head(model: PreTrainedModel) -> ResponseHead | None:
    """Return the model's trunk and head; None if its logits are not a ``LogitTransform`` of one linear layer.

    This is tested by a forward pass over a few tokens, not by the model's name. A hook replaces the output of the
    linear layer by known numbers, so that the logits show their transform. The test also compares the layer's input
    with the output of the trunk.
    """
    inner = innermost(model)
    trunk, output = inner.base_model, inner.get_output_embeddings()
    if trunk is inner or type(output) is not nn.Linear:
        return None
    ids_BT = torch.arange(6, device=model.device).view(2, 3) % len(output.weight)
    seen: dict[str, Tensor] = {}

    def exchange(_: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
        seen["hidden"], seen["z"], seen["known"] = inputs[0], z, _probe_numbers(z)
        return seen["known"].clone()  # a copy, because some models change their logits in place

    handle = output.register_forward_hook(exchange)
    try:
        with torch.no_grad():
            logits = inner(input_ids=ids_BT, use_cache=False).logits
    finally:
        handle.remove()
    if "z" not in seen or logits.shape != seen["known"].shape:
        return None
    with torch.no_grad():
        hidden = trunk(input_ids=ids_BT, use_cache=False)[0]
        z = nn.functional.linear(hidden, output.weight, output.bias) if hidden.shape == seen["hidden"].shape else None
    if z is None or not torch.allclose(z, seen["z"], rtol=1e-4, atol=1e-5):
        return None
    transform = _fit_transform(seen["known"].flatten().double(), logits.flatten().double())
    return None if transform is None else ResponseHead(trunk=trunk, output=output, transform=transform)


def _probe_numbers(like: Tensor) -> Tensor:
    """Return numbers from -1e6 to 1e6, dense around 0, as known outputs of the linear layer.

    They are shuffled, so that they are not a function of position or token.
    """
    ramp = torch.linspace(-1, 1, like.numel(), device=like.device).pow(9) * 1e6
    shuffled = torch.randperm(like.numel(), generator=torch.Generator().manual_seed(0)).to(like.device)
    return ramp[shuffled].to(like.dtype).view(like.shape)


def _fit_transform(z_N: Float[Tensor, " number"], logit_N: Float[Tensor, " number"]) -> LogitTransform | None:
    """Return the ``LogitTransform`` that maps ``z_N`` to ``logit_N``; None if there is none."""
    most = int(z_N.argmax())
    if not bool(logit_N.isfinite().all()):
        return None
    scale, cap = float(logit_N[most] / z_N[most]), None
    if not torch.allclose(z_N * scale, logit_N, rtol=1e-5, atol=1e-6):
        cap = float(logit_N[most])
        straight = (z_N.abs() > 1e-4 * abs(cap)) & (logit_N.abs() < 0.9 * abs(cap))
        if cap <= 0 or not bool(straight.any()):
            return None
        scale = float((cap * (logit_N[straight] / cap).atanh() / z_N[straight]).median())
    nearest = round(scale, 6)
    # round the scale: with 1.0000001 instead of 1, every logit would be multiplied
    transform = LogitTransform(scale=nearest if abs(nearest - scale) < 1e-6 * abs(scale) else scale, cap=cap)
    return transform if torch.allclose(transform.apply(z_N), logit_N, rtol=1e-4, atol=1e-5) else None


def chunked_logps(
    head: ResponseHead,
    hidden_ND: Float[Tensor, "position width"],
    target_N: Int[Tensor, " position"],
    *,
    temperature: float,
    products: torch.dtype | None = None,
    entropies: bool = True,
    logits_per_chunk: int | None = None,
) -> tuple[Float[Tensor, " position"], Float[Tensor, " position"] | None]:
    """Return the log-probability of each target token, and the entropy of its distribution.

    The distribution is softmax(logits / temperature). Both tensors are float32, in nats, and have gradients. Entropies
    are None unless ``entropies``, because they cost another pass over the logits.

    Args:
        products: Data type of the factors of matrix products on a GPU. Sums are always in float32.
        logits_per_chunk: Number of logits to compute at a time. Default: see ``choose_chunk_logits``.
    """
    weight_VD, bias_V = head.output.weight, head.output.bias
    rows = max(1, (logits_per_chunk or choose_chunk_logits(hidden_ND.device)) // len(weight_VD))
    if hidden_ND.device.type != "cuda":
        products = None
    logp_N, entropy_N = _ChunkedLogps.apply(
        hidden_ND, weight_VD, bias_V, target_N, head.transform, temperature, rows, products, entropies
    )
    return logp_N, entropy_N


def _product(a: Tensor, b: Tensor, products: torch.dtype | None) -> Tensor:
    """Return ``a @ b`` in float32."""
    if products is None:
        return a.float() @ b.float()
    return torch.mm(a.to(products), b.to(products), out_dtype=torch.float32)


class _ChunkedLogps(torch.autograd.Function):
    """Autograd function of ``chunked_logps``. The backward pass recomputes logits from the kept hidden states.

    If all logits fit one chunk, they are kept instead.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_N: Tensor,
        transform: LogitTransform,
        temperature: float,
        rows: int,
        products: torch.dtype | None,
        entropies: bool,
    ) -> tuple[Tensor, Tensor | None]:
        logp_N = torch.empty(len(hidden_ND), device=hidden_ND.device)
        entropy_N, lse_N = torch.empty_like(logp_N) if entropies else None, torch.empty_like(logp_N)
        logp_CV = None
        factor_VD = weight_VD if products is None else weight_VD.to(products)  # converted once for all chunks
        with torch.autocast(hidden_ND.device.type, enabled=False):
            for first in range(0, len(hidden_ND), rows):
                part = slice(first, first + rows)
                logit_CV = _logits(hidden_ND[part], factor_VD, bias_V, transform, temperature, products)
                torch.logsumexp(logit_CV, dim=-1, out=lse_N[part])
                logp_CV = logit_CV.sub_(lse_N[part, None])
                torch.gather(logp_CV, 1, target_N[part, None], out=logp_N[part, None])
                if entropy_N is not None:
                    torch.sum(logp_CV.exp().mul_(logp_CV), dim=-1, out=entropy_N[part]).neg_()
        kept = logp_CV if len(hidden_ND) <= rows else None
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, target_N, lse_N, entropy_N, kept)
        ctx.settings = (transform, temperature, rows, products)
        ctx.set_materialize_grads(False)
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        grad_logp_N, grad_entropy_N = gradients
        hidden_ND, weight_VD, bias_V, target_N, lse_N, entropy_N, kept = ctx.saved_tensors
        transform, temperature, rows, products = ctx.settings
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        grad_hidden_ND = torch.empty_like(hidden_ND) if wants_hidden else None
        grad_weight_VD = torch.zeros_like(weight_VD) if wants_weight else None
        grad_bias_V = torch.zeros_like(bias_V) if wants_bias else None
        factor_VD = weight_VD if products is None else weight_VD.to(products)
        with torch.autocast(hidden_ND.device.type, enabled=False):
            for first in range(0, len(hidden_ND), rows):
                part = slice(first, first + rows)
                if kept is None:
                    logp_CV = _logits(hidden_ND[part], factor_VD, bias_V, transform, temperature, products)
                    logp_CV.sub_(lse_N[part, None])
                else:
                    logp_CV = kept
                grad_logit_CV = _logit_gradient(
                    logp_CV,
                    target_N[part],
                    None if entropy_N is None else entropy_N[part],
                    None if grad_logp_N is None else grad_logp_N[part],
                    None if grad_entropy_N is None else grad_entropy_N[part],
                )
                # chain rule from the tempered logits to z = W h + b
                grad_logit_CV.mul_(transform.scale / temperature)
                if transform.cap is not None:
                    capped_CV = (logp_CV + lse_N[part, None]).mul_(temperature / transform.cap)
                    grad_logit_CV.sub_(capped_CV.square_().mul_(grad_logit_CV))
                if grad_hidden_ND is not None:
                    grad_hidden_ND[part] = _product(grad_logit_CV, factor_VD, products)
                if grad_weight_VD is not None:
                    if products is None:
                        grad_weight_VD.addmm_(grad_logit_CV.t(), hidden_ND[part].to(grad_weight_VD.dtype))
                    else:
                        grad_weight_VD += _product(grad_logit_CV.t(), hidden_ND[part], products)
                if grad_bias_V is not None:
                    grad_bias_V += grad_logit_CV.sum(dim=0)
        return grad_hidden_ND, grad_weight_VD, grad_bias_V, None, None, None, None, None, None


def _logits(
    hidden_CD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    transform: LogitTransform,
    temperature: float,
    products: torch.dtype | None,
) -> Tensor:
    z_CV = _product(hidden_CD, weight_VD.t(), products)
    if bias_V is not None:
        z_CV += bias_V
    logit_CV = transform.apply(z_CV)
    return logit_CV if temperature == 1 else logit_CV.div_(temperature)


def _logit_gradient(
    logp_CV: Tensor,
    target_C: Tensor,
    entropy_C: Tensor | None,
    grad_logp_C: Tensor | None,
    grad_entropy_C: Tensor | None,
) -> Tensor:
    """Return the gradient with respect to the tempered logits l.

    d logp/dl_v = [v = y] - p_v and dH/dl_v = -p_v (log p_v + H), for target y, probabilities p and entropy H.
    """
    p_CV = logp_CV.exp()
    if entropy_C is None or grad_entropy_C is None:
        if grad_logp_C is None:
            return p_CV.zero_()
        grad_logit_CV = p_CV.mul_(-grad_logp_C[:, None])
    else:
        slope_CV = (logp_CV + entropy_C[:, None]).mul_(grad_entropy_C[:, None])
        if grad_logp_C is not None:
            slope_CV += grad_logp_C[:, None]
        grad_logit_CV = p_CV.mul_(slope_CV).neg_()
    if grad_logp_C is not None:
        grad_logit_CV.scatter_add_(1, target_C[:, None], grad_logp_C[:, None])
    return grad_logit_CV
