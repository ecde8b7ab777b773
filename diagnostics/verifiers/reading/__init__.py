"""Pure text rules that extract the answer of a response, before its mathematics is parsed."""
