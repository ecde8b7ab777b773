"""What is joined or counted once for many queries of one connection: the samples of a series, the counts of a store."""
