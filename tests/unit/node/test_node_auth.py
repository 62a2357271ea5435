"""Auth on a real node: which calls are admitted, what is checked where, and what is in the log."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from kvstore.apply.entry_context import EntryContext
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.backend import Table
from kvstore.batch import AS_ROOT, Inbox
from kvstore.errors import (
    AUTH_FAILED,
    AUTH_NOT_ENABLED,
    AUTH_OLD_REVISION,
    INVALID_AUTH_TOKEN,
    LEASE_NOT_FOUND,
    NO_PASSWORD_USER,
    PASSWORD_TOO_LONG,
    PERMISSION_DENIED,
    PERMISSION_NOT_GIVEN,
    TOO_MANY_REQUESTS,
    USER_EMPTY,
    Code,
    CorruptionError,
)
from kvstore.node.auth.logins import PASSWORDS_MAX
from kvstore.wire import rpc
from kvstore.wire.gen import auth_pb2, health_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field
from tests.support.node.auth_member import BOTH, READ, WRITE, AuthMember

Make = Callable[..., AuthMember]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda *flags: AuthMember(tmp_path, *flags)


@pytest.fixture
def member(tmp_path: Path) -> AuthMember:
    return AuthMember(tmp_path)


# Logging in.


def test_a_token_is_letters_and_the_index_before_its_entry(member: AuthMember) -> None:
    member.set_up()
    before = member.parts.raft.applied
    token = member.login("alice")
    prefix, _, index = token.partition(".")
    assert len(prefix) == 16
    assert prefix.isalpha()
    assert int(index) == before
    request = member.log.requests(Field.AUTHENTICATE)[-1].authenticate
    assert (request.name, request.password, request.simple_token) == ("alice", "", prefix)


def test_logging_in_is_refused_for_etcds_reasons(member: AuthMember) -> None:
    def login(name: str, password: str) -> object:
        return member.refused(
            rpc.AUTHENTICATE, pb.AuthenticateRequest(name=name, password=password)
        )

    assert login("root", "pw") == AUTH_NOT_ENABLED
    root = member.set_up()
    options = auth_pb2.UserAddOptions(no_password=True)
    member.call(rpc.AUTH_USER_ADD, pb.AuthUserAddRequest(name="cn", options=options), root)
    assert login("alice", "wrong") == AUTH_FAILED
    assert login("alice", "") == AUTH_FAILED
    assert login("nobody", "pw") == AUTH_FAILED
    assert login("cn", "pw") == NO_PASSWORD_USER


def test_no_password_is_in_the_log(member: AuthMember) -> None:
    secret = "SecretWord"
    member.add_user("root", secret, "root")
    member.add_role("r")
    options = auth_pb2.UserAddOptions(no_password=True)
    request = pb.AuthUserAddRequest(name="cn", password=secret, options=options)
    member.call(rpc.AUTH_USER_ADD, request)
    member.enable()
    root = member.login("root", secret)
    change = pb.AuthUserChangePasswordRequest(name="cn", password=secret)
    member.call(rpc.AUTH_USER_CHANGE_PASSWORD, change, root)
    change = pb.AuthUserChangePasswordRequest(name="root", password=secret)
    member.call(rpc.AUTH_USER_CHANGE_PASSWORD, change, root)
    assert not any(secret.encode() in each.data for each in member.log.entries)
    [added, without] = [each.auth_user_add for each in member.log.requests(Field.AUTH_USER_ADD)]
    assert added.hashedPassword.startswith("JDJhJDA0J")  # $2a$04$
    assert without.SerializeToString() == b"\x0a\x02cn\x1a\x02\x08\x01"


@pytest.mark.parametrize("length", [72, 73])
def test_a_password_has_72_bytes_at_most(member: AuthMember, length: int) -> None:
    request = pb.AuthUserAddRequest(name="u", password="p" * length)
    if length == 72:
        member.call(rpc.AUTH_USER_ADD, request)
    else:
        assert member.refused(rpc.AUTH_USER_ADD, request) == PASSWORD_TOO_LONG


def test_names_are_limited_before_the_log(member: AuthMember) -> None:
    user = pb.AuthUserAddRequest(name="n" * 512, password="p")
    role = pb.AuthRoleAddRequest(name="n" * 512)
    before = member.parts.raft.applied
    assert member.refused(rpc.AUTH_USER_ADD, user).code == Code.INVALID_ARGUMENT
    assert "the limit is 511" in member.refused(rpc.AUTH_ROLE_ADD, role).text
    assert member.parts.raft.applied == before


def test_a_change_of_users_while_a_password_is_checked_checks_it_again(member: AuthMember) -> None:
    root = member.set_up()
    member.is_slow = True
    call = member.ask(rpc.AUTHENTICATE, pb.AuthenticateRequest(name="alice", password="pw"))
    member.turn()
    member.call(rpc.AUTH_ROLE_ADD, pb.AuthRoleAddRequest(name="new"), root)
    member.is_slow = False
    token = pb.AuthenticateResponse.FromString(member.wait(call)).token
    logins = member.log.requests(Field.AUTHENTICATE)
    assert len(logins) == 3, "root's, and twice for alice"
    assert token.startswith(logins[-1].authenticate.simple_token)


def test_a_password_changed_meanwhile_is_not_good_any_more(member: AuthMember) -> None:
    root = member.set_up()
    member.is_slow = True
    call = member.ask(rpc.AUTHENTICATE, pb.AuthenticateRequest(name="alice", password="pw"))
    member.turn()
    change = pb.AuthUserChangePasswordRequest(name="alice", hashedPassword="eHh4")
    member.call(rpc.AUTH_USER_CHANGE_PASSWORD, change, root)
    member.is_slow = False
    member.turn(Inbox())
    with pytest.raises(Exception, match="authentication failed"):
        member.wait(call)


def test_only_so_many_passwords_at_once(member: AuthMember) -> None:
    member.set_up()
    member.is_slow = True
    request = pb.AuthenticateRequest(name="alice", password="pw").SerializeToString()
    ids = [member.take_id() for _ in range(PASSWORDS_MAX)]
    for each in ids:
        member.turn(Inbox(calls=[(each, rpc.AUTHENTICATE, request)]))
    late = member.take_id()
    member.turn(Inbox(calls=[(late, rpc.AUTHENTICATE, request)]))
    assert member.answers[late][0] == TOO_MANY_REQUESTS.code
    member.turn(Inbox(gone=ids[:1]))
    later = member.take_id()
    member.turn(Inbox(calls=[(later, rpc.AUTHENTICATE, request)]))
    member.turn()
    assert later not in member.answers


def test_a_client_that_disconnected_while_its_password_was_hashed_adds_no_user(
    member: AuthMember,
) -> None:
    member.is_slow = True
    request = pb.AuthUserAddRequest(name="u", password="p")
    call = member.ask(rpc.AUTH_USER_ADD, request)
    member.turn(Inbox(gone=[call]))
    member.is_slow = False
    for _ in range(3):
        member.turn()
    assert member.parts.state.auth.user("u") is None


def test_strangers_cannot_have_passwords_hashed(member: AuthMember) -> None:
    member.set_up()
    request = pb.AuthUserAddRequest(name="u", password="p")
    assert member.refused(rpc.AUTH_USER_ADD, request) == USER_EMPTY
    assert member.refused(rpc.AUTH_USER_ADD, request, "no.1") == INVALID_AUTH_TOKEN
    assert member.parts.host.tasks._callbacks == {}


# Credentials.


def test_entries_have_the_callers_credential(member: AuthMember) -> None:
    root = member.set_up((BOTH, b"a", b"z"))
    alice = member.login("alice")
    member.put(b"k", token=alice)
    member.call(rpc.AUTH_STATUS, pb.AuthStatusRequest())
    member.call(rpc.AUTH_STATUS, pb.AuthStatusRequest(), root)
    headers = [each.header for each in member.log.requests()[-3:]]
    revision = member.parts.state.auth.revision
    assert [(each.username, each.auth_revision) for each in headers] == [
        ("alice", revision),
        ("", 0),
        ("root", revision),
    ]


@pytest.mark.parametrize(
    "metadata",
    [
        {"token": "{}"},
        {"authorization": "{}"},
        {"authorization": "Bearer {}"},
        {"token": "Bearer {}"},
        {"token": "{}", "authorization": "rubbish"},
    ],
)
def test_a_token_comes_under_two_names(member: AuthMember, metadata: dict[str, str]) -> None:
    member.set_up((READ, b"k", b""))
    token = member.login("alice")
    filled = {name: value.format(token) for name, value in metadata.items()}
    member.call(rpc.RANGE, pb.RangeRequest(key=b"k"), filled)


@pytest.mark.parametrize(
    "token", ["rubbish", "x.1", "x.y.1", ".", "Bearer ", "\u00fc.1", "a" * 9999]
)
def test_an_invalid_token_is_refused_everywhere(member: AuthMember, token: str) -> None:
    member.set_up()
    for method, request in (
        (rpc.PUT, pb.PutRequest(key=b"k")),
        (rpc.RANGE, pb.RangeRequest(key=b"k")),
        (rpc.AUTH_STATUS, pb.AuthStatusRequest()),
        (rpc.STATUS, pb.StatusRequest()),
        (rpc.COMPACT, pb.CompactionRequest(revision=1)),
    ):
        assert member.refused(method, request, token) == INVALID_AUTH_TOKEN


def test_tokens_mean_nothing_while_auth_is_off(member: AuthMember) -> None:
    member.put(b"k", token="rubbish")
    member.set_up()
    root = member.login("root")
    member.call(rpc.AUTH_DISABLE, pb.AuthDisableRequest(), root)
    member.put(b"k", token=root)
    member.put(b"k")


def test_an_unused_token_expires(make: Make) -> None:
    member = make("--auth-token-ttl=5")
    member.set_up((READ, b"k", b""))
    token = member.login("alice")
    read = pb.RangeRequest(key=b"k")
    for _ in range(3):
        member.pass_time(4)
        member.call(rpc.RANGE, read, token)
    member.pass_time(6)
    assert member.refused(rpc.RANGE, read, token) == INVALID_AUTH_TOKEN


def test_a_token_newer_than_the_log_waits_for_it(member: AuthMember) -> None:
    root = member.set_up((BOTH, b"k", b""))
    index = member.parts.raft.applied  # the entry behind it assigns the token
    token = f"abcdefghijklmnop.{index}"
    call = member.ask(rpc.PUT, pb.PutRequest(key=b"k"), token)
    stream = member.watch(token, b"k")
    member.turn(Inbox(half_closed=[stream]))
    assert call not in member.answers
    assert member.watched(stream) == []
    member.parts.state.auth.tokens.assign("alice", "abcdefghijklmnop", index, member.clock.now_ns)
    member.put(b"other", token=root)
    assert member.node.wake_ns <= member.clock.now_ns, "it goes on at once"
    member.wait(call)
    [created, *_] = member.watched(stream)
    assert created.created
    assert not created.canceled


def test_a_token_whose_index_is_never_applied_is_refused_in_the_end(member: AuthMember) -> None:
    member.set_up()
    call = member.ask(rpc.PUT, pb.PutRequest(key=b"k"), "abcdefghijklmnop.99999")
    gone = member.ask(rpc.PUT, pb.PutRequest(key=b"k"), "abcdefghijklmnop.99999")
    member.turn(Inbox(gone=[gone]))
    member.pass_time(30)
    with pytest.raises(Exception, match="invalid auth token"):
        member.wait(call)
    assert gone not in member.answers


def test_a_certificates_name_counts_only_where_certificates_are_demanded(tmp_path: Path) -> None:
    for flags, allowed in ((["--client-cert-auth"], True), ([], False)):
        member = AuthMember(tmp_path / str(allowed))
        member.parts.limits.client_cert_auth = bool(flags)
        member.set_up((READ, b"k", b""))
        read = pb.RangeRequest(key=b"k")
        name = {"tls-common-name": "alice"}
        if allowed:
            member.call(rpc.RANGE, read, name)
            stranger = {"tls-common-name": "stranger"}
            assert member.refused(rpc.RANGE, read, stranger) == PERMISSION_DENIED
            nameless = {"tls-common-name": ""}
            assert member.refused(rpc.RANGE, read, nameless) == PERMISSION_DENIED
            both = {"tls-common-name": "alice", "token": "rubbish"}
            assert member.refused(rpc.RANGE, read, both) == INVALID_AUTH_TOKEN
        else:
            assert member.refused(rpc.RANGE, read, name) == USER_EMPTY
        member.close()


def test_the_process_itself_calls_with_roots_permission(member: AuthMember) -> None:
    member.set_up()
    member.call(rpc.RANGE, pb.RangeRequest(key=b"k"), AS_ROOT)
    member.call(rpc.HASH_KV, pb.HashKVRequest(), AS_ROOT)
    assert member.refused(rpc.RANGE, pb.RangeRequest(key=b"k"), dict(AS_ROOT)) == USER_EMPTY


# Rules for each method.

USER_ONLY = [
    (rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=100)),
    (rpc.LEASE_TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=1)),
    (rpc.LEASE_LEASES, pb.LeaseLeasesRequest()),
    (rpc.MEMBER_LIST, pb.MemberListRequest()),
    (rpc.MEMBER_LIST, pb.MemberListRequest(linearizable=True)),
    (rpc.STATUS, pb.StatusRequest()),
    (rpc.ALARM, pb.AlarmRequest()),
]
ROOT_ONLY = [
    (rpc.COMPACT, pb.CompactionRequest(revision=1)),
    (rpc.ALARM, pb.AlarmRequest(action=pb.AlarmRequest.ACTIVATE, alarm=pb.NOSPACE)),
    (rpc.ALARM, pb.AlarmRequest(action=pb.AlarmRequest.DEACTIVATE)),
    (rpc.DEFRAGMENT, pb.DefragmentRequest()),
    (rpc.HASH, pb.HashRequest()),
    (rpc.HASH_KV, pb.HashKVRequest()),
    (rpc.MOVE_LEADER, pb.MoveLeaderRequest(targetID=1)),
    (rpc.AUTH_ENABLE, pb.AuthEnableRequest()),
    (rpc.AUTH_DISABLE, pb.AuthDisableRequest()),
    (rpc.AUTH_USER_ADD, pb.AuthUserAddRequest(name="u", password="p")),
    (rpc.AUTH_USER_DELETE, pb.AuthUserDeleteRequest(name="u")),
    (rpc.AUTH_USER_GET, pb.AuthUserGetRequest(name="root")),
    (rpc.AUTH_USER_LIST, pb.AuthUserListRequest()),
    (rpc.AUTH_USER_CHANGE_PASSWORD, pb.AuthUserChangePasswordRequest(name="alice", password="p")),
    (rpc.AUTH_USER_GRANT_ROLE, pb.AuthUserGrantRoleRequest(user="alice", role="root")),
    (rpc.AUTH_USER_REVOKE_ROLE, pb.AuthUserRevokeRoleRequest(name="alice", role="r")),
    (rpc.AUTH_ROLE_ADD, pb.AuthRoleAddRequest(name="x")),
    (rpc.AUTH_ROLE_DELETE, pb.AuthRoleDeleteRequest(role="r")),
    (rpc.AUTH_ROLE_GET, pb.AuthRoleGetRequest(role="other")),
    (rpc.AUTH_ROLE_LIST, pb.AuthRoleListRequest()),
    (rpc.AUTH_ROLE_GRANT_PERMISSION, pb.AuthRoleGrantPermissionRequest(name="r")),
    (rpc.AUTH_ROLE_REVOKE_PERMISSION, pb.AuthRoleRevokePermissionRequest(role="r", key=b"a")),
]


def test_some_methods_are_for_every_user_and_nobody_else(member: AuthMember) -> None:
    member.set_up()
    alice = member.login("alice")
    for method, request in USER_ONLY:
        name = rpc.METHODS[method].name
        assert member.refused(method, request) == USER_EMPTY, name
        member.call(method, request, alice)
    assert member.refused(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=1)) == USER_EMPTY
    revoke = pb.LeaseRevokeRequest(ID=1)
    assert member.refused(rpc.LEASE_REVOKE, revoke, alice) == LEASE_NOT_FOUND


def test_some_methods_are_for_root_alone(member: AuthMember) -> None:
    member.set_up()
    alice = member.login("alice")
    before = member.parts.state.auth.revision
    for method, request in ROOT_ONLY:
        name = rpc.METHODS[method].name
        assert member.refused(method, request) == USER_EMPTY, name
        assert member.refused(method, request, alice) == PERMISSION_DENIED, name
    assert member.parts.state.auth.revision == before
    assert member.ended_stream(rpc.SNAPSHOT, pb.SnapshotRequest(), alice) == (
        PERMISSION_DENIED.code,
        PERMISSION_DENIED.text,
    )


def test_changing_members_takes_root(member: AuthMember) -> None:
    member.set_up()
    alice = member.login("alice")
    for method, request in (
        (rpc.MEMBER_ADD, pb.MemberAddRequest(peerURLs=["http://127.0.0.1:1"])),
        (rpc.MEMBER_REMOVE, pb.MemberRemoveRequest(ID=1)),
        (rpc.MEMBER_UPDATE, pb.MemberUpdateRequest(ID=1, peerURLs=["http://127.0.0.1:1"])),
        (rpc.MEMBER_PROMOTE, pb.MemberPromoteRequest(ID=1)),
        (rpc.DOWNGRADE, pb.DowngradeRequest(version="3.6.0")),
    ):
        assert method in member.node.methods
        assert member.refused(method, request) == USER_EMPTY
        assert member.refused(method, request, alice) == PERMISSION_DENIED


def test_some_methods_need_no_credential(member: AuthMember) -> None:
    member.set_up()
    status = member.call(rpc.AUTH_STATUS, pb.AuthStatusRequest())
    assert status.enabled
    assert status.authRevision == member.parts.state.auth.revision
    member.call(rpc.HEALTH_CHECK, health_pb2.HealthCheckRequest())


def test_users_may_read_their_own_user_and_roles(member: AuthMember) -> None:
    member.set_up((READ, b"k", b""))
    alice = member.login("alice")
    user = member.call(rpc.AUTH_USER_GET, pb.AuthUserGetRequest(name="alice"), alice)
    assert list(user.roles) == ["r"]
    role = member.call(rpc.AUTH_ROLE_GET, pb.AuthRoleGetRequest(role="r"), alice)
    assert [each.key for each in role.perm] == [b"k"]


def test_a_permission_must_be_given(member: AuthMember) -> None:
    root = member.set_up()
    request = pb.AuthRoleGrantPermissionRequest(name="r")
    assert member.refused(rpc.AUTH_ROLE_GRANT_PERMISSION, request, root) == PERMISSION_NOT_GIVEN


# Keys.


def test_what_a_put_needs(member: AuthMember) -> None:
    root = member.set_up((WRITE, b"w", b""), (BOTH, b"b", b""), (READ, b"r", b""))
    alice = member.login("alice")

    def put(**fields: Any) -> pb.PutRequest:
        return pb.PutRequest(**fields)

    member.call(rpc.PUT, put(key=b"w"), alice)
    assert member.refused(rpc.PUT, put(key=b"r"), alice) == PERMISSION_DENIED
    assert member.refused(rpc.PUT, put(key=b"w", prev_kv=True), alice) == PERMISSION_DENIED
    member.call(rpc.PUT, put(key=b"b", prev_kv=True), alice)
    assert member.refused(rpc.PUT, put(key=b"w")) == USER_EMPTY
    # A lease somebody else hangs keys on cannot be taken for one's own: it could not be revoked.
    lease = member.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=100), alice)
    lease_id = lease.ID
    member.call(rpc.PUT, put(key=b"w", lease=lease_id), alice)
    member.call(rpc.PUT, put(key=b"foreign", lease=lease_id), root)
    assert member.refused(rpc.PUT, put(key=b"b", lease=lease_id), alice) == PERMISSION_DENIED
    assert member.refused(rpc.PUT, put(key=b"b", lease=777), alice) == LEASE_NOT_FOUND


def test_what_a_deletion_needs(member: AuthMember) -> None:
    member.set_up((WRITE, b"a", b"c"), (READ, b"b", b""))
    alice = member.login("alice")

    def refused(**fields: object) -> object:
        request = pb.DeleteRangeRequest(**fields)  # type: ignore[arg-type]
        return member.refused(rpc.DELETE_RANGE, request, alice)

    member.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"a", range_end=b"c"), alice)
    member.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"b", prev_kv=True), alice)
    assert refused(key=b"a", range_end=b"d") == PERMISSION_DENIED
    assert refused(key=b"a", range_end=b"\0") == PERMISSION_DENIED
    assert refused(key=b"a", range_end=b"c", prev_kv=True) == PERMISSION_DENIED


@pytest.mark.parametrize("serializable", [False, True])
def test_what_a_read_needs(member: AuthMember, serializable: bool) -> None:  # noqa: FBT001
    root = member.set_up((READ, b"a", b"c"))
    for key in (b"a", b"b", b"c"):
        member.put(key, token=root)
    alice = member.login("alice")

    def read(key: bytes, end: bytes = b"") -> pb.RangeRequest:
        return pb.RangeRequest(key=key, range_end=end, serializable=serializable)

    answer = member.call(rpc.RANGE, read(b"a", b"c"), alice)
    assert answer.count == 2
    assert member.refused(rpc.RANGE, read(b"a", b"d"), alice) == PERMISSION_DENIED
    assert member.refused(rpc.RANGE, read(b"a", b"\0"), alice) == PERMISSION_DENIED
    assert member.refused(rpc.RANGE, read(b"c"), alice) == PERMISSION_DENIED
    assert member.refused(rpc.RANGE, read(b"a")) == USER_EMPTY
    assert member.ended_stream(rpc.RANGE_STREAM, read(b"a", b"c"), alice) == (0, "")
    denied = (PERMISSION_DENIED.code, PERMISSION_DENIED.text)
    assert member.ended_stream(rpc.RANGE_STREAM, read(b"a", b"d"), alice) == denied


def test_a_denied_write_stays_in_the_log_and_changes_nothing(member: AuthMember) -> None:
    member.set_up((READ, b"k", b""))
    alice = member.login("alice")
    revision, index = member.parts.state.store.revision, member.parts.raft.applied
    assert member.refused(rpc.PUT, pb.PutRequest(key=b"k"), alice) == PERMISSION_DENIED
    assert member.parts.state.store.revision == revision
    assert member.parts.raft.applied == index + 1


def test_a_permission_that_goes_before_the_entry_applies_is_gone(member: AuthMember) -> None:
    root = member.set_up((BOTH, b"k", b""))
    alice = member.login("alice")
    put = pb.PutRequest(key=b"k").SerializeToString()
    revoke = pb.AuthRoleRevokePermissionRequest(role="r", key=b"k").SerializeToString()
    first, second = member.take_id(), member.take_id()
    inbox = Inbox(calls=[(first, rpc.AUTH_ROLE_REVOKE_PERMISSION, revoke), (second, rpc.PUT, put)])
    inbox.metadata.update({first: {"token": root}, second: {"token": alice}})
    member.turn(inbox)
    member.wait(first)
    with pytest.raises(Exception, match=AUTH_OLD_REVISION.text):
        member.wait(second)
    assert member.refused(rpc.PUT, pb.PutRequest(key=b"k"), alice) == PERMISSION_DENIED


def test_auth_turned_on_in_one_batch_holds_for_the_entries_behind_it(member: AuthMember) -> None:
    member.set_up()
    member.call(rpc.AUTH_DISABLE, pb.AuthDisableRequest(), member.login("root"))
    enable, put = member.start(
        (rpc.AUTH_ENABLE, pb.AuthEnableRequest()), (rpc.PUT, pb.PutRequest(key=b"k"))
    )
    member.wait(enable)
    with pytest.raises(Exception, match=USER_EMPTY.text):
        member.wait(put)


def test_a_long_read_ends_when_users_change(member: AuthMember) -> None:
    root = member.set_up((READ, b"k", b"l"))
    member.parts.limits.range_slice_keys = 2
    for number in range(20):
        member.put(b"k%02d" % number, token=root)
    alice = member.login("alice")
    read = pb.RangeRequest(key=b"k", range_end=b"l")
    stream = pb.RangeRequest(key=b"k", range_end=b"l")
    long, streamed = member.take_id(), member.take_id()
    inbox = Inbox(
        calls=[
            (long, rpc.RANGE, read.SerializeToString()),
            (streamed, rpc.RANGE_STREAM, stream.SerializeToString()),
        ]
    )
    inbox.metadata.update({long: {"token": alice}, streamed: {"token": alice}})
    member.turn(inbox)
    assert long not in member.answers
    assert streamed not in member.ended
    role = pb.AuthRoleAddRequest(name="new").SerializeToString()
    change = member.take_id()
    member.turn(
        Inbox(calls=[(change, rpc.AUTH_ROLE_ADD, role)], metadata={change: {"token": root}})
    )
    assert member.answers[long] == (AUTH_OLD_REVISION.code, AUTH_OLD_REVISION.text.encode())
    assert member.ended[streamed] == (AUTH_OLD_REVISION.code, AUTH_OLD_REVISION.text)


# Leases.


def test_a_lease_is_its_keys_writers_to_revoke_and_keep(member: AuthMember) -> None:
    root = member.set_up((WRITE, b"w", b""))
    alice = member.login("alice")
    for lease, key in ((1, b"w"), (2, b"foreign")):
        member.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=100, ID=lease), root)
        member.put(key, token=root, lease=lease)
    stream = member.open_with(rpc.LEASE_KEEP_ALIVE, alice)
    member.send(stream, pb.LeaseKeepAliveRequest(ID=1))
    answer = pb.LeaseKeepAliveResponse.FromString(member.delivered[stream][0])
    assert answer.TTL == 100
    member.send(stream, pb.LeaseKeepAliveRequest(ID=2))
    assert member.ended[stream] == (PERMISSION_DENIED.code, PERMISSION_DENIED.text)
    stranger = member.open_with(rpc.LEASE_KEEP_ALIVE)
    member.send(stranger, pb.LeaseKeepAliveRequest(ID=1))
    assert member.ended[stranger] == (USER_EMPTY.code, USER_EMPTY.text)
    revoke = pb.LeaseRevokeRequest(ID=2)
    assert member.refused(rpc.LEASE_REVOKE, revoke, alice) == PERMISSION_DENIED
    member.call(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=1), alice)
    member.call(rpc.LEASE_REVOKE, revoke, root)


def test_a_leases_keys_are_its_readers_to_see(member: AuthMember) -> None:
    root = member.set_up((READ, b"k", b""))
    alice = member.login("alice")
    member.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=100, ID=1), root)
    member.put(b"k", token=root, lease=1)
    with_keys = pb.LeaseTimeToLiveRequest(ID=1, keys=True)
    found = member.call(rpc.LEASE_TIME_TO_LIVE, with_keys, alice)
    assert list(found.keys) == [b"k"]
    member.call(rpc.LEASE_LEASES, pb.LeaseLeasesRequest(), alice)
    member.put(b"foreign", token=root, lease=1)
    assert member.refused(rpc.LEASE_TIME_TO_LIVE, with_keys, alice) == PERMISSION_DENIED
    leases = pb.LeaseLeasesRequest()
    assert member.refused(rpc.LEASE_LEASES, leases, alice) == PERMISSION_DENIED
    member.call(rpc.LEASE_TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=1), alice)
    member.call(rpc.LEASE_LEASES, leases, root)


def test_an_expired_lease_ends_whoever_may_access_its_keys(member: AuthMember) -> None:
    root = member.set_up()
    member.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=2, ID=5), root)
    member.put(b"k", token=root, lease=5)
    member.pass_time(10)
    for _ in range(5):
        member.turn()
    found = member.call(rpc.RANGE, pb.RangeRequest(key=b"k"), member.login("root"))
    assert found.count == 0
    header = member.log.requests(Field.LEASE_REVOKE)[-1].header
    assert (header.username, header.auth_revision) == ("root", member.parts.state.auth.revision)


# Watches.


def test_a_watch_needs_read_on_its_range(member: AuthMember) -> None:
    member.set_up((READ, b"a", b"c"))
    alice = member.login("alice")
    [fine] = member.watched(member.watch(alice, b"a", b"c"))
    assert (fine.created, fine.canceled) == (True, False)
    for key, end, token, code, text in (
        (b"a", b"d", alice, "PermissionDenied", PERMISSION_DENIED.text),
        (b"a", b"\0", alice, "PermissionDenied", PERMISSION_DENIED.text),
        (b"", b"\0", alice, "PermissionDenied", PERMISSION_DENIED.text),
        (b"z", b"y", alice, "PermissionDenied", PERMISSION_DENIED.text),
        (b"a", b"", "", "InvalidArgument", USER_EMPTY.text),
        (b"a", b"", "rubbish", "Unauthenticated", INVALID_AUTH_TOKEN.text),
    ):
        [answer] = member.watched(member.watch(token, key, end))
        assert (answer.created, answer.canceled, answer.watch_id) == (True, True, -1)
        assert answer.cancel_reason == f"rpc error: code = {code} desc = {text}"


def test_a_running_watch_ends_with_its_permission(member: AuthMember) -> None:
    root = member.set_up((READ, b"a", b"c"), (READ, b"x", b""))
    alice = member.login("alice")
    ranged, single = member.watch(alice, b"a", b"c"), member.watch(alice, b"x")
    everything = member.watch(root, b"\0", b"\0")
    member.put(b"a", token=root)
    assert len(member.watched(ranged)) == 2
    revoke = pb.AuthRoleRevokePermissionRequest(role="r", key=b"a", range_end=b"c")
    put = pb.PutRequest(key=b"b")
    first, second = member.take_id(), member.take_id()
    inbox = Inbox(
        calls=[
            (first, rpc.AUTH_ROLE_REVOKE_PERMISSION, revoke.SerializeToString()),
            (second, rpc.PUT, put.SerializeToString()),
        ],
        metadata={first: {"token": root}, second: {"token": root}},
    )
    member.turn(inbox)
    member.put(b"x", token=root)
    [_, event, last] = member.watched(ranged)
    assert len(event.events) == 1
    assert last.canceled
    assert last.cancel_reason.endswith(PERMISSION_DENIED.text)
    assert [len(each.events) for each in member.watched(single)] == [0, 1]
    assert sum(len(each.events) for each in member.watched(everything)) >= 2


def test_a_deleted_users_watches_end_a_changed_password_ends_none(member: AuthMember) -> None:
    root = member.set_up((READ, b"a", b""))
    stream = member.watch(member.login("alice"), b"a")
    change = pb.AuthUserChangePasswordRequest(name="alice", password="new")
    member.call(rpc.AUTH_USER_CHANGE_PASSWORD, change, root)
    assert not any(each.canceled for each in member.watched(stream))
    member.call(rpc.AUTH_USER_DELETE, pb.AuthUserDeleteRequest(name="alice"), root)
    assert member.watched(stream)[-1].canceled


def test_watches_of_nobody_end_when_auth_begins(member: AuthMember) -> None:
    stream = member.watch("", b"a")
    member.set_up()
    [created, canceled] = member.watched(stream)
    assert created.created
    assert canceled.canceled
    assert canceled.cancel_reason.endswith(USER_EMPTY.text)


def test_a_watch_outlives_its_token(make: Make) -> None:
    member = make("--auth-token-ttl=5")
    root = member.set_up((READ, b"a", b""))
    alice = member.login("alice")
    stream = member.watch(alice, b"a")
    member.pass_time(60)
    root = member.login("root")
    member.add_role("other", token=root)  # whatever changes, alice's permission has not
    member.put(b"a", token=root)
    assert [len(each.events) for each in member.watched(stream)] == [0, 1]


# The log and the disk.


def test_auth_survives_a_restart(tmp_path: Path) -> None:
    member = AuthMember(tmp_path)
    member.set_up((READ, b"k", b""))
    token = member.login("alice")
    revision = member.parts.state.auth.revision
    member.close()
    member.disk.restart()
    again = AuthMember(tmp_path, disk=member.disk)
    assert again.parts.state.auth.revision == revision
    read = pb.RangeRequest(key=b"k")
    assert again.refused(rpc.RANGE, read) == USER_EMPTY
    assert again.refused(rpc.RANGE, read, token) == INVALID_AUTH_TOKEN, "tokens are not kept"
    again.call(rpc.RANGE, read, again.login("alice"))
    again.close()


def test_a_replayed_entry_is_checked_with_its_own_credential(tmp_path: Path) -> None:
    """A replayed entry has no waiter, like those of other members: its header counts."""
    nothing_commits = ["--backend-batch-interval=24h", "--backend-batch-limit=1000000"]
    member = AuthMember(tmp_path, *nothing_commits)
    member.set_up((WRITE, b"k", b""))
    alice = member.login("alice")
    member.put(b"k", token=alice)
    assert member.refused(rpc.PUT, pb.PutRequest(key=b"no"), alice) == PERMISSION_DENIED
    assert member.refused(rpc.PUT, pb.PutRequest(key=b"k")) == USER_EMPTY
    revision = member.parts.state.store.revision
    member.crash()
    member.disk.restart()
    again = AuthMember(tmp_path, *nothing_commits, disk=member.disk)
    assert again.parts.state.store.revision == revision
    assert again.parts.state.auth.revision == member.parts.state.auth.revision
    again.call(rpc.PUT, pb.PutRequest(key=b"k"), alice)  # its token was in the log as well
    again.close()


def test_a_snapshot_from_the_leader_leaves_tokens_alone(member: AuthMember) -> None:
    member.set_up((WRITE, b"k", b""))
    alice = member.login("alice")
    member.parts.state.auth.restore()
    member.put(b"k", token=alice)


def test_a_password_in_plain_text_in_the_log_is_not_guessed_at(member: AuthMember) -> None:
    for field, request in (
        (Field.AUTH_USER_ADD, pb.AuthUserAddRequest(name="u", password="old")),
        (
            Field.AUTH_USER_CHANGE_PASSWORD,
            pb.AuthUserChangePasswordRequest(name="u", password="old"),
        ),
    ):
        with pytest.raises(CorruptionError, match=r"before 3\.5"):
            member.parts.state.applier.apply(
                field, request.SerializeToString(), EntryContext(NO_CREDENTIAL, 0, 0)
            )


def test_rows_are_in_the_tables_etcd_reads(member: AuthMember) -> None:
    member.set_up((READ, b"k", b""))
    backend = member.parts.state.backend
    assert [key for key, _ in backend.scan(Table.AUTH_USERS, b"", None, 9)] == [b"alice", b"root"]
    assert [key for key, _ in backend.scan(Table.AUTH_ROLES, b"", None, 9)] == [b"r"]
    assert backend.get(Table.AUTH, b"authEnabled") == b"\1"


# Changes of auth while calls are under way.


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        (rpc.RANGE, pb.RangeRequest(key=b"k")),
        (rpc.RANGE, pb.RangeRequest(key=b"k", serializable=True)),
        (rpc.RANGE, pb.RangeRequest(key=b"a", range_end=b"z")),
        (rpc.TXN, pb.TxnRequest(success=[pb.RequestOp(request_range=pb.RangeRequest(key=b"k"))])),
        (rpc.LEASE_LEASES, pb.LeaseLeasesRequest()),
        (rpc.LEASE_TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=1, keys=True)),
    ],
)
def test_a_read_admitted_before_auth_was_enabled_is_refused_after(
    member: AuthMember, method: int, request_: Message
) -> None:
    root = member.set_up()
    member.call(rpc.AUTH_DISABLE, pb.AuthDisableRequest(), root)
    member.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(ID=1, TTL=60))
    member.put(b"k", lease=1)
    enable, read = member.take_id(), member.take_id()
    inbox = Inbox(
        calls=[
            (enable, rpc.AUTH_ENABLE, b""),
            (read, method, request_.SerializeToString()),
        ]
    )
    member.turn(inbox)
    member.wait(enable)
    assert member.answers[read][0] == AUTH_OLD_REVISION.code


def test_what_shows_no_keys_is_answered_although_auth_is_enabled(member: AuthMember) -> None:
    root = member.set_up()
    member.call(rpc.AUTH_DISABLE, pb.AuthDisableRequest(), root)
    enable, status = member.take_id(), member.take_id()
    member.turn(Inbox(calls=[(enable, rpc.AUTH_ENABLE, b""), (status, rpc.STATUS, b"")]))
    assert member.answers[status][0] == Code.OK
