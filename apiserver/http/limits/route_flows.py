"""The flows of the requests of one route, by user."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kvstack.apimachinery.attributes import User
    from kvstack.apiserver.policy.flow_control.levels import Flow


class RouteFlows:
    """Valid as long as nothing is configured anew."""

    __slots__ = ("by_user", "generation", "last", "last_user")

    def __init__(self, generation: int) -> None:
        """Know none; generation: of the configuration."""
        self.generation: Final = generation
        self.by_user: Final[dict[tuple[str, tuple[str, ...]], Flow]] = {}
        """By name and groups."""
        self.last_user: User | None = None
        """Who was looked for last, and what was found."""
        self.last: Flow | None = None
