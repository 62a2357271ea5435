"""The input of decisions: nodes and pods as columns of numbers, and requests of pods."""
