"""Histograms, and the text in which metrics are read."""
