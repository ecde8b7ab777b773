"""One-line programs: an expression of parameters and whole numbers, checked against a grammar and then executed."""
