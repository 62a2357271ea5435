"""Messages of CSI and of the registration of plugins, generated from proto/."""
