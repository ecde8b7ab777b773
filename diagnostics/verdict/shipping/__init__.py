"""Which checkpoint to ship: the options, the choice, and its sentences. Pure."""
