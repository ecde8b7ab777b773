"""Measures of a judge: bias, repeat agreement, gold labels, and a comparison with a second grader."""
