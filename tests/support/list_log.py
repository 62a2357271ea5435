"""A logger that keeps its lines."""


class ListLog:
    """Keeps what is logged: level, message and fields of each line."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def debug(self, msg: str, **fields: object) -> None:
        self.lines.append(("debug", msg, fields))

    def info(self, msg: str, **fields: object) -> None:
        self.lines.append(("info", msg, fields))

    def warning(self, msg: str, **fields: object) -> None:
        self.lines.append(("warning", msg, fields))

    def error(self, msg: str, **fields: object) -> None:
        self.lines.append(("error", msg, fields))

    def of(self, level: str) -> list[tuple[str, dict[str, object]]]:
        """Return message and fields of the lines of a level."""
        return [(msg, fields) for each, msg, fields in self.lines if each == level]

    def text(self) -> str:
        """Return all lines as a text, for asserts and messages."""
        return "\n".join(f"{level} {msg} {fields}" for level, msg, fields in self.lines)
