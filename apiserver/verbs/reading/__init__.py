"""Get, list and watch: verbs that change nothing."""
