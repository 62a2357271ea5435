"""What is done to containers that run: probes (`prober`) and hooks, both by `actions`."""
