"""The agents of a process, by the names that `--without` takes."""

from typing import Final

CONTROLLERS: Final = "controllers"
SCHEDULER: Final = "scheduler"
NODES: Final = "nodes"
"""Those that only pretend."""
NODE: Final = "node"
"""The one that runs pods as processes."""
PARTS: Final = (CONTROLLERS, SCHEDULER, NODES, NODE)
