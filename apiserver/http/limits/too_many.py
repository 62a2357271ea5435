"""The refusal of a request under overload: 429 with Retry-After."""


class TooManyError(Exception):
    """Too many requests are being handled."""

    def __init__(self, retry_s: int = 1) -> None:
        """retry_s: after how many seconds the client may retry."""
        self.retry_s = retry_s
