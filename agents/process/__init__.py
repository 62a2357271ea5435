"""What processes of agents have in common: flags, the lease of the leader, pages for operators."""
