"""Series beside each other: pairs, seeds of one objective, and what must be equal to compare."""
