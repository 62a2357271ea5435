"""What a request is refused with while too much is being done already: 429 with Retry-After."""


class TooManyError(Exception):
    """More requests are being handled than may be."""

    def __init__(self, retry_s: int = 1) -> None:
        """Keep after how many seconds the client may try again."""
        self.retry_s = retry_s
