"""What looks beyond one member: messages, leadership, members, versions, corruption."""
