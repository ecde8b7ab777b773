"""Parts outside the loss: correction, rehearsal, decoding and resampling of rollouts."""
