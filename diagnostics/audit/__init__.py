"""The audit of a series, stage by stage, and what is made of a finished one: plan, confirmation, regrading."""
