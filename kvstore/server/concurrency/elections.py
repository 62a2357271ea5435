"""The Election service: the oldest contender is the leader, and can change its key's value."""

from collections.abc import AsyncIterator

from kvstore.errors import Code
from kvstore.runtime.local_client import CallRefusedError
from kvstore.server.concurrency.contenders import (
    Contenders,
    contender_key,
    created_at,
    end_of,
    is_absent,
    oldest,
)
from kvstore.wire.gen import election_pb2 as epb
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb


class Campaign:
    """The campaign of one caller."""

    def __init__(self, contenders: Contenders, name: bytes) -> None:
        self._contenders = contenders
        self._name = name
        self.leader: epb.LeaderKey | None = None  # None: no key was put yet

    async def campaign(self, request: epb.CampaignRequest) -> epb.CampaignResponse:
        """Put the key, and return once elected."""
        contenders, prefix = self._contenders, self._name + b"/"
        lease = await contenders.lease(request.lease)
        key = contender_key(prefix, lease)
        put = pb.RequestOp(request_put=pb.PutRequest(key=key, value=request.value, lease=lease))
        get = pb.RequestOp(request_range=pb.RangeRequest(key=key))
        entered = await contenders.txn(
            pb.TxnRequest(compare=[is_absent(key)], success=[put], failure=[get])
        )
        leader = epb.LeaderKey(name=self._name, key=key, rev=entered.header.revision, lease=lease)
        self.leader = leader
        if not entered.succeeded:
            own = entered.responses[0].response_range.kvs[0]
            leader.rev = own.create_revision
            if own.value != request.value:
                await proclaim(contenders, epb.ProclaimRequest(leader=leader, value=request.value))
        await contenders.wait_for_deletes(prefix, leader.rev - 1)
        return epb.CampaignResponse(header=entered.header, leader=leader)

    async def withdraw(self) -> None:
        """Delete the key."""
        if self.leader is not None:
            await resign(self._contenders, epb.ResignRequest(leader=self.leader))


async def proclaim(contenders: Contenders, request: epb.ProclaimRequest) -> epb.ProclaimResponse:
    """Change the leader's value."""
    leader = _leader_of(request)
    put = pb.RequestOp(
        request_put=pb.PutRequest(key=leader.key, value=request.value, lease=leader.lease)
    )
    done = await contenders.txn(
        pb.TxnRequest(compare=[created_at(leader.key, leader.rev)], success=[put])
    )
    if not done.succeeded:
        raise CallRefusedError(Code.UNKNOWN, "election: not leader")
    return epb.ProclaimResponse(header=done.header)


async def resign(contenders: Contenders, request: epb.ResignRequest) -> epb.ResignResponse:
    """Delete the leader's or a contender's key; does nothing if it was replaced or deleted."""
    leader = _leader_of(request)
    delete = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=leader.key))
    done = await contenders.txn(
        pb.TxnRequest(compare=[created_at(leader.key, leader.rev)], success=[delete])
    )
    return epb.ResignResponse(header=done.header)


async def leader(contenders: Contenders, request: epb.LeaderRequest) -> epb.LeaderResponse:
    """Return the leader's key and value."""
    found = await contenders.get(oldest(request.name + b"/"))
    if not found.kvs:
        raise CallRefusedError(Code.UNKNOWN, "election: no leader")
    return epb.LeaderResponse(header=found.header, kv=found.kvs[0])


async def observe(
    contenders: Contenders, request: epb.LeaderRequest
) -> AsyncIterator[epb.LeaderResponse]:
    """Yield each leader with each of its values, one leader after the other, until cancelled."""
    prefix = request.name + b"/"
    while True:
        found = await contenders.get(oldest(prefix))
        if found.kvs:
            first = epb.LeaderResponse(header=found.header, kv=found.kvs[0])
        else:
            first = await _first_put(contenders, prefix, found.header.revision)
        yield first
        async with contenders.watch(first.kv.key, b"", first.header.revision + 1) as watch:
            async for response in watch:
                values = _values(response)
                for each in values:
                    yield each
                if len(values) < len(response.events):
                    break  # deleted: the next oldest contender is the leader


async def _first_put(contenders: Contenders, prefix: bytes, revision: int) -> epb.LeaderResponse:
    async with contenders.watch(prefix, end_of(prefix), revision) as watch:
        async for response in watch:
            for event in response.events:
                if event.type == kv_pb2.Event.PUT:
                    header = response.header
                    header.revision = event.kv.mod_revision  # the header's may be a later one
                    return epb.LeaderResponse(header=header, kv=event.kv)
    raise CallRefusedError(Code.UNKNOWN, "lost watcher waiting for a leader")


def _values(response: pb.WatchResponse) -> list[epb.LeaderResponse]:
    """Return the leader's values, up to the deletion of its key."""
    values = []
    for event in response.events:
        if event.type == kv_pb2.Event.DELETE:
            break
        values.append(epb.LeaderResponse(header=response.header, kv=event.kv))
    return values


def _leader_of(request: epb.ProclaimRequest | epb.ResignRequest) -> epb.LeaderKey:
    if not request.HasField("leader"):
        raise CallRefusedError(Code.UNKNOWN, '"leader" field must be provided')
    return request.leader
