"""The commands on clusters as values: fork, open, get, delete, diff, pack."""
