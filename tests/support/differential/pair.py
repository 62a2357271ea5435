"""Two servers in lockstep: the same calls on both, every answer compared.

    reset ─► play(call, call, …) ─► compare what is left ─► reset ─► …

Both servers live on from example to example, at the same revision: whatever one did, the other
did. `reset` makes an example independent of those before: no keys but one, no leases, no alarms,
and nothing to be seen before the revision it begins with, its base. After a failed comparison both
are started anew on empty directories, so that every run of a shrinking example begins alike.

Environment, for runs by hand: KVSTORE_TEST_PEER=/path/to/etcd is another etcd to compare with
(against 3.7 no known difference is forgiven), KVSTORE_TEST_SUBJECT=/path/to/etcd is played in this
project's place, which tests the comparison itself, and KVSTORE_TEST_EXAMPLES=n plays n random
examples of each kind instead of the few that are the same every time. KVSTORE_TEST_SHRINK=0 shows
the first failure at once.
"""

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import Message
from hypothesis import HealthCheck, Phase, settings

from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import servers
from tests.support.differential.calls import (
    CHANNEL_OPTIONS,
    METHODS,
    RANGE_STREAM,
    Call,
    Moment,
    Outcome,
    keep_alive,
    server_stream,
    start_unary,
)
from tests.support.differential.known import Peer

EXAMPLES: Final = int(os.environ.get("KVSTORE_TEST_EXAMPLES", "0"))
SHRINK: Final = os.environ.get("KVSTORE_TEST_SHRINK", "1") != "0"
WHOLE: Final = {"key": b"\0", "range_end": b"\0"}
FIRST_KEY: Final = b"base"  # the one key every example begins with
COMPACTIONS_KEPT: Final = 10  # hashes of compactions that 3.7 keeps


def examples(default: int) -> settings:
    """Return how to run a property: a few fixed examples, or as many random ones as asked for."""
    return settings(
        max_examples=EXAMPLES or default,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        print_blob=False,
        phases=[each for each in Phase if SHRINK or each not in (Phase.shrink, Phase.explain)],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def peer() -> Peer:
    """Return the etcd to compare with."""
    return Peer.of(servers.peer())


def subject_command() -> list[str]:
    """Return the command of the server under test."""
    other = os.environ.get("KVSTORE_TEST_SUBJECT")
    return [other] if other else [sys.executable, "-m", "kvstore"]


class Side:
    """One of the two servers, and a channel to it."""

    def __init__(self, name: str, command: list[str], data_dir: Path, extra: Sequence[str]) -> None:
        self.name = name
        self.server = servers.Server(command, data_dir, extra=extra).start(wait=False)
        self.channel = grpc.insecure_channel(self.server.endpoint, options=CHANNEL_OPTIONS)
        self.member_id = 0

    def wait_ready(self) -> None:
        self.server.wait_ready()
        self.member_id = self.call("Status").message.header.member_id

    def start(self, name: str, request: Message) -> Callable[[], Outcome]:
        method = METHODS[name]
        return start_unary(
            self.channel, method.path, request.SerializeToString(), method.response.FromString
        )

    def call(self, name: str, **fields: Any) -> Outcome:
        return self.start(name, METHODS[name].request(**fields))()

    def range_stream(self, request: Message) -> Outcome:
        return server_stream(
            self.channel,
            RANGE_STREAM,
            request.SerializeToString(),
            lambda body: pb.RangeStreamResponse.FromString(body).range_response,
        )

    def close(self) -> None:
        """End the server and give its disk space back; its log stays."""
        self.channel.close()
        if self.server.process is not None:
            self.server.kill()
        shutil.rmtree(self.server.data_dir, ignore_errors=True)


class Pair:
    """The server under test and its peer."""

    def __init__(self, tmp: Path, *, extra: Sequence[str] = ()) -> None:
        self.peer = peer()
        self.broken = False
        others = [self.peer]
        if len(subject_command()) == 1:
            others.append(Peer.of(Path(subject_command()[0])))
        self._versions = others
        self._tmp = tmp
        self._extra = ["--unsafe-no-fsync", *extra]
        self._generation = itertools.count()
        self.sides: tuple[Side, ...] = ()
        self._start()

    def _start(self) -> None:
        number = next(self._generation)
        commands = {"ours": subject_command(), "etcd": [str(self.peer.binary)]}
        started: list[Side] = []
        try:
            for name, command in commands.items():
                started.append(Side(name, command, self._tmp / f"{name}{number}", self._extra))
            for side in started:
                side.wait_ready()
        except BaseException:
            for side in started:
                side.close()
            raise
        self.sides = tuple(started)
        self.broken = False
        self.base = self.now = 1
        self.compacted = -1
        self.compactions: list[int] = []
        self.deletions: set[int] = set()

    @property
    def ours(self) -> Side:
        return self.sides[0]

    @property
    def etcd(self) -> Side:
        return self.sides[1]

    def meets_defect(self, defect: str) -> bool:
        """Tell whether an etcd on either side fails in this way."""
        return any(each.has_defect(defect) for each in self._versions)

    def close(self) -> None:
        for side in self.sides:
            side.close()
        self.sides = ()

    def restart(self) -> None:
        """Begin anew on empty directories."""
        self.close()
        self._start()

    # Examples.

    def reset(self) -> None:
        """Forget what was, on both sides alike."""
        if self.broken:
            self.restart()
        self.broken = True  # until the example has gone well
        for side in self.sides:
            for alarm in side.call("Alarm").message.alarms:
                side.call(
                    "Alarm",
                    action=pb.AlarmRequest.DEACTIVATE,
                    memberID=alarm.memberID,
                    alarm=alarm.alarm,
                )
        self.deletions.clear()
        self.play("DeleteRange", WHOLE)
        for lease in self.play("LeaseLeases", {})[0].message.leases:
            self.play("LeaseRevoke", {"ID": lease.ID})
        self.play("Put", {"key": FIRST_KEY})
        self.play("Compact", {"revision": self.now, "physical": True})
        self.base = self.now

    def run(self, calls: Sequence[Call]) -> None:
        """Play an example from a fresh start, and compare what it leaves behind."""
        self.reset()
        for name, request in calls:
            self.play(name, request)
        self.compare_state()
        self.broken = False

    def compare_state(self) -> None:
        """Compare all that can be seen of the two stores."""
        self.play("Range", WHOLE)
        self.play("HashKV", {})
        for revision in range(max(self.compacted, self.base), self.now):
            self.play("HashKV", {"revision": revision})
            self.play("Range", {**WHOLE, "revision": revision})
        for lease in self.play("LeaseLeases", {})[0].message.leases:
            self.play("LeaseTimeToLive", {"ID": lease.ID, "keys": True})
        self.play("Alarm", {})

    # One call on both sides.

    def play(self, name: str, request: dict[str, Any]) -> list[Outcome]:
        """Make one call on both sides, compare the answers, and return them (ours, etcd's)."""
        plain = Moment(self.base, self.now, 0).put_in(request)
        if (
            name == "Txn"
            and self.meets_defect("deleted and put again in one transaction")
            and deletes_then_puts(plain)
        ):
            return []
        if name == "KeepAlive":
            outcomes = [keep_alive(side.channel, plain["leases"]) for side in self.sides]
        else:
            waits = []
            for side in self.sides:
                fields = Moment(self.base, self.now, side.member_id).put_in(request)
                waits.append(side.start(name, METHODS[name].request(**fields)))
            outcomes = [wait() for wait in waits]
        self._compare(name, plain, outcomes)
        self._follow(name, plain, outcomes[0])
        if name == "Range":
            self._compare_stream(plain)
        if name == "Compact" and not plain.get("physical") and outcomes[0].code == "OK":
            # A refused physical compaction still waits for the one under way.
            self.play(name, {**plain, "physical": True})
        return outcomes

    def _compare(self, name: str, request: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
        ours, etcd = (
            normalized(self, side, name, request, outcome)
            for side, outcome in zip(self.sides, outcomes, strict=True)
        )
        if name == "LeaseTimeToLive":
            align_ttl(ours, etcd)
        if (
            name == "Txn"
            and {ours.code, etcd.code} <= {"NOT_FOUND", "OUT_OF_RANGE", "INVALID_ARGUMENT"}
            and self.peer.has("order of checks in a transaction")
        ):
            return
        if ours != etcd:
            raise AssertionError(
                f"{name}({request}) at revision {self.now}, base {self.base}\n"
                f"ours: {ours}\netcd: {etcd}"
            )

    def _follow(self, name: str, request: dict[str, Any], outcome: Outcome) -> None:
        """Keep the revision, compactions and deletions in mind."""
        if outcome.code != "OK" or name in ("MemberList", "Defragment", "HealthCheck"):
            return
        for message in outcome.messages:
            revision = message.header.revision
            assert revision >= self.now, f"{name}: revision {revision} after {self.now}"
            if revision > self.now and (name == "LeaseRevoke" or _deletes(message)):
                self.deletions.add(revision)
            self.now = revision
        if name == "Compact":
            self.compacted = request["revision"]
            kept = sorted({*self.compactions, self.compacted})
            self.compactions = kept[-COMPACTIONS_KEPT:]

    def _compare_stream(self, request: dict[str, Any]) -> None:
        message = pb.RangeRequest(**request)
        whole = self.ours.call("Range", **request)
        ours = self.ours.range_stream(message)
        # With a negative limit etcd sends everything at once; in pieces it is no less right.
        is_comparable = request.get("limit", 0) >= 0 and not (
            request.get("sort_target", 0) and self.meets_defect("range stream in another order")
        )
        if is_comparable and not self.peer.has("range stream"):
            etcd = self.etcd.range_stream(message)
            assert pieces(ours) == pieces(etcd), f"RangeStream({request})\n{ours}\netcd: {etcd}"
        if ours.code == "UNIMPLEMENTED":
            assert "does not support" in ours.text
            return
        if whole.code != "OK":
            assert (ours.code, ours.text) == (whole.code, whole.text), f"RangeStream({request})"
            return
        together = joined(ours)
        _anonymous(together)
        _anonymous(whole.message)
        assert together == whole.message, f"RangeStream({request})\n{ours}\nRange: {whole}"


def pieces(outcome: Outcome) -> tuple[object, ...]:
    """Return a stream's outcome without what differs between members."""
    for message in outcome.messages:
        _anonymous(message)
    return outcome.code, outcome.text, *outcome.messages


def joined(outcome: Outcome) -> pb.RangeResponse:
    """Put a stream's pieces together, checking that only the last has header, more and count."""
    assert outcome.code == "OK", outcome
    *firsts, last = outcome.messages
    for each in firsts:
        assert not each.HasField("header"), each
        assert not each.more, each
        assert not each.count, each
        assert each.kvs, "an empty piece that is not the last"
    response = pb.RangeResponse(header=last.header, more=last.more, count=last.count)
    for each in outcome.messages:
        response.kvs.extend(each.kvs)
    return response


def normalized(
    pair: Pair, side: Side, name: str, request: dict[str, Any], outcome: Outcome
) -> Outcome:
    """Return an outcome without what may differ, a known difference put right in the peer's."""
    is_peer = side is pair.etcd
    copies = []
    for message in outcome.messages:
        copy = type(message)()
        copy.CopyFrom(message)
        if name != "HealthCheck":
            _anonymous(copy)
        match name:
            case "Range" if is_peer and pair.peer.has("keys-only lease"):
                _erase_leases(request, copy)
            case "Txn" if is_peer and pair.peer.has("keys-only lease"):
                _erase_leases_in_txn(request, copy)
            case "HashKV":
                _normalize_hash(pair, request, copy, is_peer=is_peer)
            case "LeaseTimeToLive":
                copy.keys[:] = sorted(copy.keys)  # etcd: in the order of a Go map
            case "MemberList":
                _normalize_members(copy)
            case "Alarm":
                for alarm in copy.alarms:
                    alarm.memberID = int(alarm.memberID == side.member_id)
            case "Status":
                copy = _comparable_status(pair, side, copy)
        copies.append(copy)
    code, text = outcome.code, outcome.text
    if name == "HashKV" and pair.peer.has("compaction hashes"):
        revision = request.get("revision", 0) or pair.now
        if revision in pair.compactions:
            assert is_peer or code == "OK", outcome
            return Outcome("OK")
    return Outcome(code, text, tuple(copies))


def _anonymous(message: Any) -> None:
    if message.HasField("header"):
        message.header.CopyFrom(pb.ResponseHeader(revision=message.header.revision))


def _erase_leases(request: dict[str, Any], response: pb.RangeResponse) -> None:
    if request.get("keys_only") and request.get("sort_target", 0) != pb.RangeRequest.VALUE:
        for kv in response.kvs:
            kv.lease = 0


def _erase_leases_in_txn(request: dict[str, Any], response: pb.TxnResponse) -> None:
    branch = request.get("success" if response.succeeded else "failure", ())
    for op, answer in zip(branch, response.responses, strict=True):
        if "request_range" in op:
            _erase_leases(op["request_range"], answer.response_range)
        elif "request_txn" in op:
            _erase_leases_in_txn(op["request_txn"], answer.response_txn)


def _normalize_hash(
    pair: Pair, request: dict[str, Any], response: pb.HashKVResponse, *, is_peer: bool
) -> None:
    if is_peer and pair.peer.has("hash revision"):
        response.hash_revision = request.get("revision", 0) or response.header.revision


def _normalize_members(response: pb.MemberListResponse) -> None:
    for member in response.members:
        member.ID = 1
        member.peerURLs[:] = [""] * len(member.peerURLs)
        member.clientURLs[:] = [""] * len(member.clientURLs)


def _comparable_status(pair: Pair, side: Side, status: pb.StatusResponse) -> pb.StatusResponse:
    assert status.leader == side.member_id
    assert 0 < status.raftAppliedIndex <= status.raftIndex
    assert 0 < status.dbSizeInUse <= status.dbSize
    kept = pb.StatusResponse(
        header=status.header,
        # Go's protobuf library puts one space or two between fields, as each build pleases.
        errors=[
            " ".join(text.replace(str(side.member_id), "self").split()) for text in status.errors
        ],
        isLearner=status.isLearner,
    )
    if not pair.peer.has("status fields"):
        kept.version = status.version
        kept.dbSizeQuota = status.dbSizeQuota
        kept.downgradeInfo.CopyFrom(status.downgradeInfo)
    return kept


def align_ttl(ours: Outcome, etcd: Outcome) -> None:
    """Forgive a second of difference in remaining times."""
    if ours.code == etcd.code == "OK" and abs(ours.message.TTL - etcd.message.TTL) <= 1:
        ours.message.TTL = etcd.message.TTL


def deletes_then_puts(txn: dict[str, Any]) -> bool:
    """Tell whether a transaction may put a key that it has deleted."""
    deleted: list[tuple[bytes, bytes]] = []

    def look(txn: dict[str, Any]) -> bool:
        for op in [*txn.get("success", ()), *txn.get("failure", ())]:
            if "request_delete_range" in op:
                request = op["request_delete_range"]
                deleted.append((request["key"], request.get("range_end", b"")))
            elif "request_put" in op:
                key = op["request_put"]["key"]
                if any(_covers(start, end, key) for start, end in deleted):
                    return True
            elif "request_txn" in op and look(op["request_txn"]):
                return True
        return False

    return look(txn)


def _covers(start: bytes, end: bytes, key: bytes) -> bool:
    return key == start if not end else start <= key and (end == b"\0" or key < end)


def _deletes(message: Any) -> bool:
    match message:
        case pb.DeleteRangeResponse():
            return message.deleted > 0
        case pb.TxnResponse():
            return any(
                _deletes(getattr(each, each.WhichOneof("response") or "response_put"))
                for each in message.responses
            )
        case _:
            return False
