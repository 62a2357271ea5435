"""The headers of a request that h11 has read, as handlers look at them."""

import h11


class H11Head:
    """The headers of a request."""

    __slots__ = ("_items",)

    def __init__(self, request: h11.Request) -> None:
        self._items = [
            (name.decode("ascii"), value.decode("utf-8", "surrogateescape"))
            for name, value in request.headers
        ]

    def get(self, name: str) -> str | None:
        """Return the first value of a header."""
        name = name.lower()
        for each, value in self._items:
            if each == name:
                return value
        return None

    def get_all(self, name: str) -> list[str]:
        """Return all values of a header."""
        name = name.lower()
        return [value for each, value in self._items if each == name]

    def items(self) -> list[tuple[str, str]]:
        """Return all headers."""
        return list(self._items)

    def has_prefix(self, prefix: str) -> bool:
        """Return whether there is a header whose name begins so."""
        return any(name.startswith(prefix) for name, _ in self._items)
