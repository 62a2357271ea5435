"""The base classes of the errors that end a program or one of its requests."""


class ComponentError(Exception):
    """The base class of every error that this project raises on purpose."""


class ConfigError(ComponentError):
    """A configuration value is invalid; the text names the value and the limit."""
