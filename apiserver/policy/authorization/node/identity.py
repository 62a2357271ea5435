"""Node users: `system:node:<name>` in the group of all nodes."""

from kvstack.apimachinery.attributes import NODE_PREFIX, NODES, User


def node_of(user: User) -> str | None:
    """Return the name of the node, possibly empty; None: the user is not a node."""
    if not user.name.startswith(NODE_PREFIX) or NODES not in user.groups:
        return None
    return user.name[len(NODE_PREFIX) :]
