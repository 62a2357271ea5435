"""`kvstack doctor`: what this machine gives a cluster, and what follows from it."""
