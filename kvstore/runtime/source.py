"""The sources and observers of the driver's loop: peers, the local client, tasks.

    poll ──► fill(inbox) ──► on_inbox(inbox) ──► answer ──► drain(out) ──► flush ──► on_sent(out)
                                                  └── and again for the output of settle ──┘

A source adds to the inbox and takes from the outbox. An observer sees both and changes nothing. The
driver calls all of them in every turn, so they must cost nothing when there is nothing to do, and
never wait. A source with new results calls the wake function it was made with.
"""

from typing import Protocol

from kvstore.batch import Inbox, Outbox


class Source(Protocol):
    """Something that adds to the inbox and takes from the outbox."""

    def fill(self, inbox: Inbox) -> None:
        """Add what has arrived; remove what the node must not see."""
        ...

    def drain(self, out: Outbox) -> None:
        """Remove what this source handles; add what the client port must send."""
        ...


class TurnObserver(Protocol):
    """Something that sees each turn's inbox and outbox, and changes nothing."""

    def on_inbox(self, inbox: Inbox) -> None:
        """See the inbox of a turn that begins; its columns may later be replaced, not changed."""
        ...

    def on_sent(self, out: Outbox) -> None:
        """See an outbox after it was flushed to the client port."""
        ...
