"""Plan the passes of a step: which responses share a pass, and in which layout, at minimal cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oversharp.trainers.model.layouts import Layout

#: Launch overhead of a pass, in tokens. On a CPU it is the overhead of calling the layers, measured at the width below,
#: and its cost in tokens falls with the work per token. On a GPU, kernel launches cost more.
PASS_TOKENS = {"cpu": 256, "cuda": 4096}
MEASURED_WIDTH = 96
#: Size of one activation that saturates a device. Larger passes are split if that reduces padding; on a CPU always,
#: because they no longer fit its cache.
BUSY_NUMBERS = {"cpu": 200_000, "cuda": 65536 * 1024}
#: A response shorter than this share of the longest starts a new pass.
_MUCH_SHORTER = 0.75


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Token counts of each response and its prompt, and the index of the prompt. ``width`` is the hidden size.

    ``unshared`` is the number of input tokens of a response after the prefix shared with the previous response; in
    sorted order, their sum is the size of the prefix tree.
    """

    response: Sequence[int]
    unshared: Sequence[int]
    prompt: Sequence[int]
    prompt_index: Sequence[int]
    width: int

    def __len__(self) -> int:
        return len(self.response)


@dataclass(frozen=True, kw_only=True)
class PlannedPass:
    """Responses of one pass (positions in ``Lengths``), its layout, and its cost in tokens."""

    rows: tuple[int, ...]
    layout: Layout
    cost: float


def plan_passes(
    lengths: Lengths, *, most_rows: int | None, layouts: Sequence[Layout], device: str = "cpu"
) -> list[PlannedPass]:
    """Split the responses into passes of at most ``most_rows``, in the cheaper of two orders.

    Order by length minimizes padding; order by prompt lets responses share prompts.

    >>> whose = [0, 0, 0, 0, 1, 1, 1, 1]
    >>> lengths = Lengths(response=[6] * 8, unshared=[5] * 8, prompt=[6] * 8, prompt_index=whose, width=96)
    >>> [(one.rows, one.layout) for one in plan_passes(lengths, most_rows=None, layouts=("rows", "tree"))]
    [((0, 1, 2, 3, 4, 5, 6, 7), 'tree')]
    """
    longest = Counter[int]()
    for index, tokens in zip(lengths.prompt_index, lengths.response, strict=True):
        longest[index] = max(longest[index], tokens)
    by_prompt = sorted(
        range(len(lengths)),
        key=lambda row: (-longest[lengths.prompt_index[row]], lengths.prompt_index[row], -lengths.response[row]),
    )
    by_length = sorted(range(len(lengths)), key=lambda row: (-lengths.response[row], lengths.prompt_index[row]))
    plans = [
        [
            _cheapest(rows, lengths, layouts, device)
            for rows in _group_rows(order, lengths, most_rows, device, whole_prompts)
        ]
        for order, whole_prompts in ((by_prompt, True), (by_length, False))
    ]
    return min(plans, key=lambda plan: sum(planned_pass.cost for planned_pass in plan))


def pass_tokens(width: int, device: str) -> float:
    """Return the launch overhead of a pass, in tokens of a model of this width.

    >>> pass_tokens(96, "cpu"), pass_tokens(384, "cpu")
    (256.0, 16.0)
    """
    return PASS_TOKENS[device] * (min(1.0, (MEASURED_WIDTH / width) ** 2) if device == "cpu" else 1.0)


def _group_rows(
    order: Sequence[int], lengths: Lengths, most_rows: int | None, device: str, whole_prompts: bool
) -> Iterator[tuple[int, ...]]:
    """Yield groups of rows. ``whole_prompts``: rows are ordered by prompt, and only ``most_rows`` splits a prompt."""
    rows: list[int] = []
    tokens, busy = 0, BUSY_NUMBERS[device] / lengths.width
    for row in order:
        if rows:
            same_prompt = lengths.prompt_index[row] == lengths.prompt_index[rows[-1]]
            much_shorter = lengths.response[row] < _MUCH_SHORTER * lengths.response[rows[0]]
            may_split = not (whole_prompts and same_prompt) if device == "cpu" else much_shorter
            if len(rows) == most_rows or (may_split and tokens >= busy):
                yield tuple(rows)
                rows, tokens = [], 0
        new_prompt = not rows or lengths.prompt_index[row] != lengths.prompt_index[rows[-1]]
        rows.append(row)
        tokens += lengths.unshared[row] if whole_prompts else lengths.response[row]
        tokens += lengths.prompt[row] if new_prompt or not whole_prompts else 0
    if rows:
        yield tuple(rows)


def _cheapest(rows: tuple[int, ...], lengths: Lengths, layouts: Sequence[Layout], device: str) -> PlannedPass:
    plans = [
        PlannedPass(rows=rows, layout=layout, cost=cost_tokens(rows, lengths, layout, device)) for layout in layouts
    ]
    return min(plans, key=lambda plan: plan.cost)


def cost_tokens(rows: Sequence[int], lengths: Lengths, layout: Layout, device: str = "cpu") -> float:
    """Return the cost of a pass, in tokens through the layers' matrices.

    Every pair of tokens in attention costs 1 / (4 width). The operation count gives 1 / (6 width), and a model of width
    384 took 50 % more on a CPU.

    >>> lengths = Lengths(response=[4, 4], unshared=[3, 2], prompt=[10, 10], prompt_index=[0, 0], width=96)
    >>> cost_tokens((0, 1), lengths, "rows"), cost_tokens((0, 1), lengths, "tree")
    (282.88..., 271.58...)
    """
    width = max(lengths.response[row] for row in rows)
    length = max(lengths.prompt[row] for row in rows)
    inputs = Counter[int]()
    for row in rows:
        inputs[lengths.prompt_index[row]] += lengths.unshared[row]
    n_rows, n_prompts, started = len(rows), len(inputs), pass_tokens(lengths.width, device)
    if layout == "tree":
        slots = length + max(inputs.values())
        tokens, pairs = n_prompts * slots, n_prompts * slots**2
    elif layout == "packed":
        tokens = sum(lengths.prompt[row] + lengths.response[row] for row in rows)
        pairs = tokens**2
    else:
        tokens, pairs = n_rows * (length + width - 1), n_rows * (length + width - 1) ** 2
    return started + tokens + pairs / (4 * lengths.width)
