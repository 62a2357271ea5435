"""Errors of drivers, apart from the client, which needs gRPC."""


class DriverError(Exception):
    """A driver did not do what it was asked."""

    def __init__(self, text: str, *, code: str = "", is_final: bool = True) -> None:
        """code: gRPC's name of the kind of error; is_final: whether the operation has ended."""
        super().__init__(text)
        self.code = code
        self.is_final = is_final
