"""Requests and tokens of a server, for the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oversharp.diagnostics.http.prices import TokenPrices
from oversharp.diagnostics.samplers.contract import SamplerReport
from oversharp.diagnostics.samplers.endpoint.placement import ServedModel

#: Stage of the events with the numbers of requests and tokens.
USAGE_STAGE = "endpoint usage"


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Requests and tokens of a server so far, and the repeated requests by fault."""

    requests: int
    prompt_tokens: int
    completion_tokens: int
    faults: Counter[str]


def read_usage(served: ServedModel) -> Usage:
    """Return the usage up to now."""
    client, transport = served.client, served.client.transport
    return Usage(
        requests=transport.n_requests,
        prompt_tokens=client.prompt_tokens,
        completion_tokens=client.completion_tokens,
        faults=transport.faults.copy(),
    )


def report_usage(served: ServedModel, before: Usage, prices: TokenPrices | None) -> tuple[SamplerReport, float]:
    """Return the report of the usage since ``before``, and its cost (0 without prices)."""
    now = read_usage(served)
    prompt_tokens = now.prompt_tokens - before.prompt_tokens
    completion_tokens = now.completion_tokens - before.completion_tokens
    usage: dict[str, Any] = {
        "url": served.client.transport.url,
        "model": served.model,
        "requests": now.requests - before.requests,
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "repeated": dict(now.faults - before.faults),
        "answered_as": sorted(served.client.other_models),
    }
    cost = 0.0
    if prices is not None:
        usage["cost"] = cost = prices.money(prompt_tokens, completion_tokens)
    return SamplerReport(stage=USAGE_STAGE, wall_s=0.0, note=json.dumps(usage)), cost


def oddities(served: ServedModel) -> Iterator[str]:
    """Yield warnings: another model answers, or prompts may be truncated."""
    client, url = served.client, served.client.transport.url
    if client.other_models:
        yield (
            f"warning: {url}: asked for the model {served.model!r}, and the responses name "
            f"{', '.join(sorted(client.other_models))}; check which model it serves"
        )
    if (n := client.counts_alike) is not None:
        yield (
            f"warning: {url}: counts {n} tokens for each prompt, although the prompts are of unequal length; it may "
            "truncate them: check its context length"
        )
