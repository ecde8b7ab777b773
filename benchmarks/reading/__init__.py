"""Graders on real solutions, judged answers and ways of solving."""
