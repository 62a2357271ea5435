"""Priority and fairness: which requests go on, which wait, and which are refused."""
