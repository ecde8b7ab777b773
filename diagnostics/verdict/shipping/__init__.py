"""Which checkpoint to ship: what there is to choose from, the choice, and its words. Pure."""
