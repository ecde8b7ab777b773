"""Graders on real solutions and judged answers, and parsed ways of solving."""
