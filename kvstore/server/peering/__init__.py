"""This server's side of the links between members."""
