"""One watch: what its client was sent.

A stream turns changes into events and bookmarks as its client reads them. `watch_streams` decides
when to send, and what is shared with other streams.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kvstack.apiserver.http.watches import websocket
from kvstack.apiserver.http.watches.events import DELETED, EventWriter
from kvstack.apiserver.http.watches.fan_out import Group, kind_of
from kvstack.apiserver.registry.window import Change
from kvstack.apiserver.verbs.results import Watching
from kvstack.component.http.serving.answer import PIECE_BYTES, Answer, Upgraded
from kvstack.component.http.websocket import Frames


class WatchStream:
    """One watch."""

    __slots__ = ("answer", "client", "deadline", "group", "is_begun", "peer", "position",
                 "sent_revision", "user", "watching", "writer")  # fmt: skip

    def __init__(
        self,
        watching: Watching,
        writer: EventWriter,
        answer: Answer,
        user: str = "",
        client: tuple[str, str] = ("", ""),
    ) -> None:
        self.user: Final = user
        """The user whose bytes are counted; empty: none."""
        self.client: Final = client
        """The user and the User-Agent."""
        self.watching: Final = watching
        self.writer: Final = writer
        self.answer: Final = answer
        self.peer: Upgraded | None = None
        """The connection, if it is a WebSocket."""
        self.group: Group | None = None
        self.position = 0
        """All changes up to this revision have been sent."""
        self.sent_revision = 0
        """The last revision that was sent to the client."""
        self.is_begun = False
        """Whether an event was sent."""
        self.deadline = 0.0

    @property
    def lacks_changes(self) -> bool:
        """Whether it has not been sent all changes."""
        collection = self.writer.endpoint.collection
        # Streams in a group are sent each change as it comes.
        return self.group is None and collection is not None and self.position < collection.revision

    def end(self) -> None:
        """End: the client must start a new watch."""
        self.answer.close()

    def written(self, changes: Sequence[Change]) -> Iterator[bytes]:
        """Yield the events of changes for this stream, in pieces."""
        selection = self.watching.selection
        parts: list[bytes] = []
        size = 0
        for each in changes:
            if selection.covers(each.key) and (kind := kind_of(selection, each)):
                with_columns = self.writer.is_table and not self.is_begun
                event = self.writer.past_change(kind, each, with_columns=with_columns)
                self.is_begun = True
                parts.append(event)
                size += len(event)
                if size >= PIECE_BYTES:
                    yield b"".join(parts)
                    parts.clear()
                    size = 0
        if parts:
            yield b"".join(parts)

    def bookmark(self, revision: int, *, is_initial_end: bool = False) -> bytes:
        """Return a bookmark in this stream's encoding."""
        data = self.writer.bookmark(
            revision, is_initial_end=is_initial_end, with_columns=not self.is_begun
        )
        self.is_begun = True
        self.sent_revision = revision
        return data

    async def convert(self, changes: Sequence[Change]) -> None:
        """Convert the objects of changes, if this stream is in another version."""
        converted = self.writer.endpoint.converted_version
        if converted is None:
            return
        selection = self.watching.selection
        covered = [change for change in changes if selection.covers(change.key)]
        records = [
            change.record if change.record is not None else change.gone() for change in covered
        ]
        if selection.needs_converted:
            records += [change.previous for change in covered if change.previous is not None]
            await converted.records(records)
            records = []
        records += [
            change.gone()
            for change in covered
            if change.previous is not None and kind_of(selection, change) == DELETED
        ]
        await converted.records(records)

    async def read(self, peer: Upgraded) -> None:
        """Answer pings until the client closes, then end."""
        frames = Frames(websocket.MESSAGE_BYTES_MAX)
        while not frames.is_over and (data := await peer.read()):
            frames.receive(data)
            pongs = frames.replies()
            if pongs and not frames.is_over:  # the end of the stream answers a close frame
                self.answer.write_now(pongs)
        self.answer.close()
