"""Parts that change advantages or take samples out of the batch."""
