"""Parts that change the samples or their weights: correction, rehearsal, decoding and resampling."""
