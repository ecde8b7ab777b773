"""Prices of tokens at a hosted service."""

from __future__ import annotations

import math
from dataclasses import dataclass

from oversharp.diagnostics.records.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TokenPrices:
    """Money per million tokens of prompts and of responses, in any currency."""

    prompt: float
    response: float

    @classmethod
    def parse(cls, given: str) -> TokenPrices:
        """Return the prices of "PROMPT,RESPONSE". Raises ``ConfigError``.

        >>> TokenPrices.parse("0.15,0.6")
        TokenPrices(prompt=0.15, response=0.6)
        """
        try:
            prompt, response = map(float, given.split(","))
        except ValueError:
            prompt = response = math.nan
        if not (0 <= prompt < math.inf and 0 <= response < math.inf):
            raise ConfigError(
                f"--prices {given}: must be two numbers, the prices of a million tokens of prompts and of responses, "
                "such as 0.15,0.60"
            )
        return cls(prompt=prompt, response=response)

    def money(self, prompt_tokens: float, response_tokens: float) -> float:
        """Return the price of these numbers of tokens.

        >>> TokenPrices(prompt=0.15, response=0.6).money(2_000_000, 500_000)
        0.6
        """
        return (self.prompt * prompt_tokens + self.response * response_tokens) / 1e6


def money_text(money: float) -> str:
    """Return an amount of money with two decimals, or more if it is below 1.

    >>> money_text(1234.5), money_text(0.0042), money_text(0.0)
    ('1,234.50', '0.0042', '0.00')
    """
    return f"{money:.2g}" if 0.0 < money < 1.0 else f"{money:,.2f}"
