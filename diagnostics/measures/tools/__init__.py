"""Measures of turns and tool calls. A series of plain responses has no findings of them."""
