"""Samples that other tools wrote: from their files to a verdict."""
