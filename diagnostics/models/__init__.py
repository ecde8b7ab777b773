"""Language models: loaded, held, and given problems as tokens."""
