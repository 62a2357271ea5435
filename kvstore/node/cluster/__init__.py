"""What concerns several members: messages, leadership, members, versions, corruption."""
