"""The logs of a node on its disk: which are its own, and links by which collectors find them."""
