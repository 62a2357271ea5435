"""`kvstack doctor`: checks this machine, with consequences for a cluster."""
