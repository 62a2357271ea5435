"""What takes part in the loop beside the client port: peers, the process's own client, tasks.

    poll ──► fill(inbox) ──► arrived(inbox) ──► answer ──► drain(out) ──► flush ──► left(out)
                                                └── and again for what comes of settle ──┘

A source fills and drains; an observer sees what the others have left. The driver's thread calls all
of them in every turn, so they must cost nothing when there is nothing to do, and never wait. A
source with new results calls the wake-up it was made with.
"""

from typing import Protocol

from kvstore.batch import Inbox, Outbox


class Source(Protocol):
    """Something that adds to the inbox and takes from the outbox."""

    def fill(self, inbox: Inbox) -> None:
        """Add what has arrived; take out what the node is not to see."""
        ...

    def drain(self, out: Outbox) -> None:
        """Take out what is this source's to do; add what is to leave by the client port."""
        ...


class TurnObserver(Protocol):
    """Something that sees what passes, and changes nothing."""

    def arrived(self, inbox: Inbox) -> None:
        """Note that a turn begins with this inbox; its columns may be replaced, but not changed."""
        ...

    def left(self, out: Outbox) -> None:
        """Look at what has been handed to the client port."""
        ...
