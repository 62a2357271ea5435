"""Which requests wait for which others when there are too many of them."""
