"""Sampler that asks an OpenAI-compatible server, here or elsewhere."""
