"""Requests that the member itself puts into the log: no client has sent them."""

from kvstore.auth.tokens import NO_CREDENTIAL, Credential
from kvstore.node.parts import Parts
from kvstore.node.waiters import INTERNAL, ResultCallback, Waiter
from kvstore.wire.internal import wrap


def propose(
    parts: Parts,
    field: int,
    body: bytes,
    *,
    credential: Credential = NO_CREDENTIAL,
    call_id: int = INTERNAL,
    callback: ResultCallback | None = None,
) -> None:
    """Propose a request with this turn's batch.

    field: its number in InternalRaftRequest. callback: called with the result.
    """
    data = wrap(field, body, parts.replication.request_ids.next(), *credential)
    parts.replication.pending.add(
        data, Waiter(call_id, field, None, body, None, credential, callback)
    )
