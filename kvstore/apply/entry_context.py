"""The context of an entry: what applying it depends on besides its request.

It is made for one entry, passed down as an argument and kept nowhere, so no entry can be applied
with another's credential.
"""

from typing import NamedTuple

from kvstore.auth.tokens import Credential


class EntryContext(NamedTuple):
    """The circumstances of one entry."""

    credential: Credential  # from the entry's header; counts with auth on
    index: int  # type: ignore[assignment]  # hides tuple.index
    now_ns: int  # monotonic
