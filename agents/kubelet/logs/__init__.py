"""The logs of a node on its disk, and links to them for log collectors."""
