"""Estimate the cost of an audit from measured CPU rates or GPU data sheets."""
