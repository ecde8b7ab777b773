"""Figures as SVG, PNG and PDF."""
