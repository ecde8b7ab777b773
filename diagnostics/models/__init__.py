"""Load language models, keep one loaded model in memory, and encode prompts as tokens."""
