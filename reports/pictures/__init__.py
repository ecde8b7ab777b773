"""Draw figures as SVG, PNG and PDF."""
