"""Messages of the container runtime interface, generated from proto/."""
