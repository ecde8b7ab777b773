"""Tables of words by language: how answers are announced, and what changes the number next to it."""
