"""Log-probabilities and entropies of response tokens from hidden states, a chunk of logits at a time.

With a vocabulary of 150,000 the logits of a batch outweigh all else that a step holds. Here a chunk of them exists
at a time, in the forward pass and again in the backward pass, which makes them anew. All sums are float32.
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

#: Logits that exist at one time on a CPU: 64 MiB of float32. Twice this is alive in a pass, three times in its
#: backward pass.
_LOGITS_PER_CHUNK = 1 << 24


@dataclass(frozen=True, kw_only=True)
class LogitLaw:
    """The logits that a model makes of its head's output z: ``scale`` · z, or ``cap`` · tanh(``scale`` · z / ``cap``).

    Granite divides its logits, Cohere multiplies them, Gemma caps them.
    """

    scale: float = 1.0
    cap: float | None = None

    def apply(self, z: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Return the logits.

        >>> LogitLaw(scale=0.5).apply(torch.tensor([4.0])), LogitLaw(cap=2.0).apply(torch.tensor([1e3]))
        (tensor([2.]), tensor([2.]))
        """
        if self.scale != 1:
            z = z * self.scale
        return z if self.cap is None else (z / self.cap).tanh().mul_(self.cap)


def logits_on(device: torch.device) -> int:
    """Logits that exist at one time on a device."""
    return elements_per_chunk(device, _LOGITS_PER_CHUNK)


@dataclass(frozen=True, kw_only=True)
class ResponseHead:
    """A causal language model in two: ``trunk`` gives hidden states, ``law`` of ``output`` makes logits of them."""

    trunk: nn.Module
    output: nn.Linear
    law: LogitLaw


def find_head(model: PreTrainedModel) -> ResponseHead | None:
    """The model's trunk and head, None if its logits are anything but a ``LogitLaw`` of one linear layer.

    Nobody's name decides: the model reads a few tokens while its head's output is exchanged for known numbers, so
    what it does to them, and that it gave its trunk's hidden states to the head, is seen and not assumed.
    """
    inner = innermost(model)
    trunk, output = inner.base_model, inner.get_output_embeddings()
    if trunk is inner or type(output) is not nn.Linear:
        return None
    ids_BT = torch.arange(6, device=model.device).view(2, 3) % len(output.weight)
    seen: dict[str, Tensor] = {}

    def exchange(_: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
        seen["hidden"], seen["z"], seen["known"] = inputs[0], z, _known_numbers(z)
        return seen["known"].clone()  # a model may change its logits in place

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
    law = _fit_law(seen["known"].flatten().double(), logits.flatten().double())
    return None if law is None else ResponseHead(trunk=trunk, output=output, law=law)


def _known_numbers(like: Tensor) -> Tensor:
    """From -1e6 to 1e6, dense around 0, in an order that no rule over positions or tokens could share."""
    ramp = torch.linspace(-1, 1, like.numel(), device=like.device).pow(9) * 1e6
    shuffled = torch.randperm(like.numel(), generator=torch.Generator().manual_seed(0)).to(like.device)
    return ramp[shuffled].to(like.dtype).view(like.shape)


def _fit_law(z_N: Float[Tensor, " number"], logit_N: Float[Tensor, " number"]) -> LogitLaw | None:
    """The law that turns every ``z_N`` into ``logit_N``, None if there is none."""
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
    # 1 read back as 1.0000001 would cost a multiplication of every logit
    law = LogitLaw(scale=nearest if abs(nearest - scale) < 1e-6 * abs(scale) else scale, cap=cap)
    return law if torch.allclose(law.apply(z_N), logit_N, rtol=1e-4, atol=1e-5) else None


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
    """Log-probability of each target and entropy of each law softmax(logits / temperature), in nats, float32.

    Gradient flows through both. Entropies take a pass of their own over the logits: without ``entropies`` they are
    None. On a GPU ``products`` is the type that matrix products take their factors in; they are summed in float32
    either way. ``logits_per_chunk`` None: what suits the device.
    """
    weight_VD, bias_V = head.output.weight, head.output.bias
    rows = max(1, (logits_per_chunk or logits_on(hidden_ND.device)) // len(weight_VD))
    if hidden_ND.device.type != "cuda":
        products = None
    logp_N, entropy_N = _ChunkedLogps.apply(
        hidden_ND, weight_VD, bias_V, target_N, head.law, temperature, rows, products, entropies
    )
    return logp_N, entropy_N


def _product(a: Tensor, b: Tensor, products: torch.dtype | None) -> Tensor:
    """``a @ b`` in float32."""
    if products is None:
        return a.float() @ b.float()
    return torch.mm(a.to(products), b.to(products), out_dtype=torch.float32)


class _ChunkedLogps(torch.autograd.Function):
    """Forward keeps hidden states; backward makes the logits again. What fits one chunk is kept instead."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_N: Tensor,
        law: LogitLaw,
        temperature: float,
        rows: int,
        products: torch.dtype | None,
        entropies: bool,
    ) -> tuple[Tensor, Tensor | None]:
        logp_N = torch.empty(len(hidden_ND), device=hidden_ND.device)
        entropy_N, lse_N = torch.empty_like(logp_N) if entropies else None, torch.empty_like(logp_N)
        law_CV = None
        factor_VD = weight_VD if products is None else weight_VD.to(products)  # once for all chunks
        with torch.autocast(hidden_ND.device.type, enabled=False):
            for first in range(0, len(hidden_ND), rows):
                part = slice(first, first + rows)
                logit_CV = _logits(hidden_ND[part], factor_VD, bias_V, law, temperature, products)
                torch.logsumexp(logit_CV, dim=-1, out=lse_N[part])
                law_CV = logit_CV.sub_(lse_N[part, None])
                torch.gather(law_CV, 1, target_N[part, None], out=logp_N[part, None])
                if entropy_N is not None:
                    torch.sum(law_CV.exp().mul_(law_CV), dim=-1, out=entropy_N[part]).neg_()
        kept = law_CV if len(hidden_ND) <= rows else None
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, target_N, lse_N, entropy_N, kept)
        ctx.settings = (law, temperature, rows, products)
        ctx.set_materialize_grads(False)
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        of_logp_N, of_entropy_N = gradients
        hidden_ND, weight_VD, bias_V, target_N, lse_N, entropy_N, kept = ctx.saved_tensors
        law, temperature, rows, products = ctx.settings
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        of_hidden_ND = torch.empty_like(hidden_ND) if wants_hidden else None
        of_weight_VD = torch.zeros_like(weight_VD) if wants_weight else None
        of_bias_V = torch.zeros_like(bias_V) if wants_bias else None
        factor_VD = weight_VD if products is None else weight_VD.to(products)
        with torch.autocast(hidden_ND.device.type, enabled=False):
            for first in range(0, len(hidden_ND), rows):
                part = slice(first, first + rows)
                if kept is None:
                    law_CV = _logits(hidden_ND[part], factor_VD, bias_V, law, temperature, products)
                    law_CV.sub_(lse_N[part, None])
                else:
                    law_CV = kept
                of_logit_CV = _of_logits(
                    law_CV,
                    target_N[part],
                    None if entropy_N is None else entropy_N[part],
                    None if of_logp_N is None else of_logp_N[part],
                    None if of_entropy_N is None else of_entropy_N[part],
                )
                # from logit / temperature back to z = W h + b
                of_logit_CV.mul_(law.scale / temperature)
                if law.cap is not None:
                    capped_CV = (law_CV + lse_N[part, None]).mul_(temperature / law.cap)
                    of_logit_CV.sub_(capped_CV.square_().mul_(of_logit_CV))
                if of_hidden_ND is not None:
                    of_hidden_ND[part] = _product(of_logit_CV, factor_VD, products)
                if of_weight_VD is not None:
                    if products is None:
                        of_weight_VD.addmm_(of_logit_CV.t(), hidden_ND[part].to(of_weight_VD.dtype))
                    else:
                        of_weight_VD += _product(of_logit_CV.t(), hidden_ND[part], products)
                if of_bias_V is not None:
                    of_bias_V += of_logit_CV.sum(dim=0)
        return of_hidden_ND, of_weight_VD, of_bias_V, None, None, None, None, None, None


def _logits(
    hidden_CD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    law: LogitLaw,
    temperature: float,
    products: torch.dtype | None,
) -> Tensor:
    z_CV = _product(hidden_CD, weight_VD.t(), products)
    if bias_V is not None:
        z_CV += bias_V
    logit_CV = law.apply(z_CV)
    return logit_CV if temperature == 1 else logit_CV.div_(temperature)


def _of_logits(
    law_CV: Tensor,
    target_C: Tensor,
    entropy_C: Tensor | None,
    of_logp_C: Tensor | None,
    of_entropy_C: Tensor | None,
) -> Tensor:
    """Gradient at the tempered logits: d logp/dl_v = [v = y] - p_v and dH/dl_v = -p_v (log p_v + H)."""
    p_CV = law_CV.exp()
    if entropy_C is None or of_entropy_C is None:
        if of_logp_C is None:
            return p_CV.zero_()
        of_logit_CV = p_CV.mul_(-of_logp_C[:, None])
    else:
        slope_CV = (law_CV + entropy_C[:, None]).mul_(of_entropy_C[:, None])
        if of_logp_C is not None:
            slope_CV += of_logp_C[:, None]
        of_logit_CV = p_CV.mul_(slope_CV).neg_()
    if of_logp_C is not None:
        of_logit_CV.scatter_add_(1, target_C[:, None], of_logp_C[:, None])
    return of_logit_CV
