"""Pure text rules that extract the answer that a response states, before mathematics is parsed."""
