"""What a response states as its answer, and in which form: pure rules on text, before any mathematics is parsed."""
