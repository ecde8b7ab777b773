"""Load language models, keep them, and encode problems as tokens."""
