"""The flows of the requests of one route, by user."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kvstack.apimachinery.attributes import User
    from kvstack.apiserver.policy.flow_control.levels import Flow


class RouteFlows:
    """Valid until the configuration changes."""

    __slots__ = ("by_user", "generation", "last", "last_user")

    def __init__(self, generation: int) -> None:
        """generation: of the configuration."""
        self.generation: Final = generation
        self.by_user: Final[dict[tuple[str, tuple[str, ...]], Flow]] = {}
        """Flows by user name and groups."""
        self.last_user: User | None = None
        """The last user that was looked up, and its flow."""
        self.last: Flow | None = None
