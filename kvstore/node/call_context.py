"""The facts that admission establishes about one call, passed on to its handler.

    admit ──► CallContext ──► handler(call_id, body, context) ──► the log, or the reads

It is made for one call and never changed, and everything that proposes or reads takes it, or its
credential, as an argument. Nothing keeps it between calls: there is no reset to forget.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from kvstore.auth.tokens import NO_CREDENTIAL, Credential
from kvstore.batch import Metadata, Outbox
from kvstore.errors import Refusal

NO_METADATA: Final[Mapping[str, str]] = MappingProxyType({})

ReadCheck: TypeAlias = Callable[[Outbox], bool]
"""Called when a read is about to be answered. False: it was refused, and that is in the outbox."""


class CallContext(NamedTuple):
    """The facts that admission established about one call."""

    metadata: Metadata = NO_METADATA
    credential: Credential = NO_CREDENTIAL  # goes into the header of the entry it proposes
    read_check: ReadCheck | None = None  # None: the read needs no permission


UNRESTRICTED: Final = CallContext()  # of calls without metadata while auth is off, and our own

Handler: TypeAlias = Callable[[int, bytes, CallContext], Refusal | None]
"""(call id, body, context) → why the call is refused at once, or None"""
