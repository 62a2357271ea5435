"""Messages of device plugins, generated from proto/."""
