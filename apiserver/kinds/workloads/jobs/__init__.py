"""Jobs: pods that come to an end, and when to start them."""
