"""The roots of the errors that end a program or what was asked of it."""


class ComponentError(Exception):
    """The root of every error that this project raises on purpose."""


class ConfigError(ComponentError):
    """A configuration value is invalid; the text names the value and the limit."""
