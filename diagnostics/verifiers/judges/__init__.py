"""Models behind a server that grade responses by a rubric."""
