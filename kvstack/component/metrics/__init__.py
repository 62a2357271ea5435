"""Histograms, and the text format of metrics."""
