from base64 import b64encode

import pytest

from kvstore.auth.store import Access, AuthStore
from kvstore.auth.tokens import SimpleTokens
from kvstore.backend import Table
from kvstore.errors import (
    AUTH_FAILED,
    AUTH_NOT_ENABLED,
    AUTH_OLD_REVISION,
    INVALID_AUTH_MANAGEMENT,
    NO_PASSWORD_USER,
    PERMISSION_DENIED,
    PERMISSION_NOT_GRANTED,
    ROLE_EMPTY,
    ROLE_EXISTS,
    ROLE_NOT_FOUND,
    ROLE_NOT_GRANTED,
    ROOT_ROLE_MISSING,
    ROOT_USER_MISSING,
    USER_EMPTY,
    USER_EXISTS,
    USER_NOT_FOUND,
    CorruptionError,
)
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.wire.gen.auth_pb2 import Permission, Role, User, UserAddOptions

HASH = b"$2a$04$abcdefghijklmnopqrstuuSomeHashThatNobodyWillEverLookInto"
TEXT = b64encode(HASH).decode()
READ, WRITE = Access.READ, Access.WRITE


def new_store(backend: MemoryBackend | None = None) -> AuthStore:
    store = AuthStore(backend or MemoryBackend(), SimpleTokens(0, lambda: "x" * 16))
    store.restore()
    return store


def with_users() -> AuthStore:
    store = new_store()
    store.add_user("root", None, TEXT)
    store.grant_role("root", "root")
    store.add_role("r")
    store.add_user("alice", None, TEXT)
    store.grant_role("alice", "r")
    return store


def permission(kind: Permission.Type, key: bytes, end: bytes = b"") -> Permission:
    return Permission(permType=kind, key=key, range_end=end)


def test_a_new_database_begins_with_revision_1() -> None:
    backend = MemoryBackend()
    assert new_store(backend).revision == 1
    assert backend.get(Table.AUTH, b"authRevision") == (1).to_bytes(8, "big")


def test_enabling_needs_the_root_user_with_the_root_role() -> None:
    store = new_store()
    assert store.enable() == ROOT_USER_MISSING
    store.add_user("root", None, TEXT)
    assert store.enable() == ROOT_ROLE_MISSING
    store.grant_role("root", "root")
    before = store.revision
    assert store.enable() is None
    assert store.enable() is None
    assert store.enabled
    assert store.revision == before, "enabling is no change"
    store.disable()
    assert store.revision == before + 1
    store.disable()
    assert store.revision == before + 1


def test_each_change_is_one_step_and_what_changes_nothing_is_none() -> None:
    store = new_store()
    steps = [
        (lambda: store.add_role("r"), 1),
        (lambda: store.add_role("r"), 0),
        (lambda: store.add_user("u", None, TEXT), 1),
        (lambda: store.add_user("u", None, TEXT), 0),
        (lambda: store.grant_role("u", "r"), 1),
        (lambda: store.grant_role("u", "r"), 0),
        (lambda: store.grant_permission("r", permission(Permission.READ, b"a")), 1),
        (lambda: store.grant_permission("r", permission(Permission.READ, b"a")), 1),
        (lambda: store.revoke_permission("r", b"a", b""), 1),
        (lambda: store.revoke_permission("r", b"a", b""), 0),
        (lambda: store.change_password("u", TEXT), 1),
        (lambda: store.revoke_role("u", "r"), 1),
        (lambda: store.revoke_role("u", "r"), 0),
        (lambda: store.delete_user("u"), 1),
        (lambda: store.delete_user("u"), 0),
        (lambda: store.delete_role("r"), 1),
        (lambda: store.delete_role("r"), 0),
    ]
    for number, (step, moved) in enumerate(steps):
        before = store.revision
        step()
        assert store.revision == before + moved, number


def test_refusals_are_etcds() -> None:
    store = with_users()
    read = permission(Permission.READ, b"k")
    assert store.add_user("", None, TEXT) == USER_EMPTY
    assert store.add_user("alice", None, TEXT) == USER_EXISTS
    assert store.add_user("bob", None, "no base64!") == NO_PASSWORD_USER
    assert store.delete_user("bob") == USER_NOT_FOUND
    assert store.change_password("bob", TEXT) == USER_NOT_FOUND
    assert store.grant_role("bob", "r") == USER_NOT_FOUND
    assert store.grant_role("alice", "none") == ROLE_NOT_FOUND
    assert store.revoke_role("bob", "r") == USER_NOT_FOUND
    assert store.revoke_role("alice", "none") == ROLE_NOT_GRANTED
    assert store.add_role("") == ROLE_EMPTY
    assert store.add_role("r") == ROLE_EXISTS
    assert store.delete_role("none") == ROLE_NOT_FOUND
    assert store.grant_permission("none", read) == ROLE_NOT_FOUND
    assert store.revoke_permission("none", b"k", b"") == ROLE_NOT_FOUND
    assert store.revoke_permission("r", b"k", b"") == PERMISSION_NOT_GRANTED


@pytest.mark.parametrize(("key", "end"), [(b"", b""), (b"", b"\0"), (b"b", b"a"), (b"b", b"b")])
def test_a_permission_on_no_key_is_refused(key: bytes, end: bytes) -> None:
    refusal = with_users().grant_permission("r", permission(Permission.READ, key, end))
    assert refusal == INVALID_AUTH_MANAGEMENT


def test_while_enabled_root_stays() -> None:
    store = with_users()
    store.add_role("root")
    store.enable()
    assert store.delete_user("root") == INVALID_AUTH_MANAGEMENT
    assert store.revoke_role("root", "root") == INVALID_AUTH_MANAGEMENT
    assert store.delete_role("root") == INVALID_AUTH_MANAGEMENT
    store.grant_role("alice", "root")
    assert store.revoke_role("alice", "root") is None
    store.disable()
    assert store.revoke_role("root", "root") is None
    assert store.delete_user("root") is None


def test_names_too_long_for_a_row_are_refused_by_size() -> None:
    store = new_store()
    assert store.add_user("n" * 511, None, TEXT) is None
    refusal = store.add_user("é" * 256, None, TEXT)
    assert refusal is not None
    assert refusal.text == "etcdserver: user name of 512 bytes, the limit is 511"
    refusal = store.add_role("n" * 600)
    assert refusal is not None
    assert refusal.text == "etcdserver: role name of 600 bytes, the limit is 511"


def test_rows_are_etcds() -> None:
    backend = MemoryBackend()
    store = new_store(backend)
    store.add_role("b")
    store.add_role("a")
    store.add_user("u", None, TEXT)
    store.add_user("cn", UserAddOptions(no_password=True), "")
    store.grant_role("u", "b")
    store.grant_role("u", "a")
    store.grant_permission("a", permission(Permission.WRITE, b"z", b"\0"))
    store.grant_permission("a", permission(Permission.READ, b"k", b"l"))
    store.grant_permission("a", permission(Permission.READWRITE, b"k", b"l"))
    users = dict(backend.scan(Table.AUTH_USERS, b"", None, 10))
    roles = dict(backend.scan(Table.AUTH_ROLES, b"", None, 10))
    assert users[b"u"] == b"\x0a\x01u\x12" + bytes([len(HASH)]) + HASH + b"\x1a\x01a\x1a\x01b\x22\0"
    assert users[b"cn"] == b"\x0a\x02cn\x22\x02\x08\x01"
    assert (
        roles[b"a"]
        == b"\x0a\x01a\x12\x08\x08\x02\x12\x01k\x1a\x01l\x12\x08\x08\x01\x12\x01z\x1a\x01\0"
    )
    assert roles[b"b"] == b"\x0a\x01b"
    assert backend.get(Table.AUTH, b"authEnabled") is None
    assert backend.get(Table.AUTH, b"authRevision") == (10).to_bytes(8, "big")


def test_a_restart_finds_everything_but_tokens() -> None:
    backend = MemoryBackend()
    store = new_store(backend)
    store.add_user("root", None, TEXT)
    store.grant_role("root", "root")
    store.add_role("r")
    store.grant_permission("r", permission(Permission.READ, b"a", b"c"))
    store.add_user("alice", None, TEXT)
    store.grant_role("alice", "r")
    store.enable()
    token = store.authenticate("alice", "p" * 16, 7, 0)
    assert token == "p" * 16 + ".7"
    again = new_store(backend)
    assert again.enabled
    assert again.revision == store.revision
    assert again.check(("alice", store.revision), b"b", b"", READ) is None
    assert again.tokens.identify(token, 1, 0, 0) is None


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        (Table.AUTH_USERS, b"u", b"\xff\xff"),
        (Table.AUTH_USERS, b"u", User(name=b"other").SerializeToString()),
        (Table.AUTH_ROLES, b"r", Role(name=b"other").SerializeToString()),
        (Table.AUTH, b"authRevision", b"\1"),
    ],
)
def test_invalid_rows_are_named(table: Table, key: bytes, value: bytes) -> None:
    backend = MemoryBackend()
    backend.put(table, key, value)
    with pytest.raises(CorruptionError, match=r"row (b'[ur]'|authRevision)"):
        new_store(backend)


def test_checks_in_etcds_order() -> None:
    store = with_users()
    assert store.check(("", 0), b"k", b"", READ) is None, "auth is off"
    store.enable()
    now = store.revision
    assert store.check(("alice", 0), b"k", b"", READ) == USER_EMPTY
    assert store.check(("nobody", now - 1), b"k", b"", READ) == AUTH_OLD_REVISION
    assert store.check(("nobody", now), b"k", b"", READ) == PERMISSION_DENIED
    assert store.check(("alice", now), b"k", b"", READ) == PERMISSION_DENIED
    assert store.check(("root", now), b"\0", b"\0", WRITE) is None
    store.grant_permission("r", permission(Permission.READ, b"k"))
    now = store.revision
    assert store.check(("alice", now), b"k", b"", READ) is None
    assert store.check(("alice", now), b"k", b"", WRITE) == PERMISSION_DENIED
    store.grant_permission("r", permission(Permission.WRITE, b"k"))
    now = store.revision
    assert store.check(("alice", now), b"k", b"", WRITE) is None
    assert store.check(("alice", now), b"k", b"", READ) == PERMISSION_DENIED
    store.grant_permission("r", permission(Permission.READWRITE, b"k"))
    now = store.revision
    assert store.check(("alice", now), b"k", b"", READ) is None
    assert store.check(("alice", now), b"k", b"", WRITE) is None


def test_permissions_of_several_roles_join() -> None:
    store = with_users()
    store.add_role("s")
    store.grant_role("alice", "s")
    store.grant_permission("r", permission(Permission.READ, b"a", b"c"))
    store.grant_permission("s", permission(Permission.READ, b"c", b"e"))
    store.enable()
    assert store.check(("alice", store.revision), b"b", b"d", READ) is None
    store.delete_role("s")
    assert store.check(("alice", store.revision), b"b", b"d", READ) == PERMISSION_DENIED
    assert store.user("alice").roles == ["r"]  # type: ignore[union-attr]


def test_of_two_permissions_with_one_key_only_the_first_is_found_again() -> None:
    store = with_users()
    for end in (b"b", b"c", b"c"):
        store.grant_permission("r", permission(Permission.READ, b"a", end))
    role = store.role("r")
    assert role is not None
    assert [each.range_end for each in role.keyPermission] == [b"b", b"c", b"c"]


def test_root_role_without_a_row_is_root_all_the_same() -> None:
    store = with_users()
    assert store.role("root") is None
    store.enable()
    assert store.check_admin(("root", 1)) is None, "however old the credential"
    assert store.check_admin(("alice", 99)) == PERMISSION_DENIED
    assert store.check_admin(("nobody", 99)) == USER_NOT_FOUND
    assert store.check_admin(("", 99)) == USER_EMPTY
    assert store.check_admin(None) == USER_EMPTY


def test_tokens_are_for_users_with_passwords_while_enabled() -> None:
    store = with_users()
    store.add_user("cn", UserAddOptions(no_password=True), "")
    assert store.authenticate("alice", "p", 1, 0) == AUTH_NOT_ENABLED
    store.enable()
    assert store.authenticate("cn", "p", 1, 0) == AUTH_FAILED
    assert store.authenticate("nobody", "p", 1, 0) == AUTH_FAILED
    assert store.authenticate("alice", "p", 1, 0) == "p.1"


def test_a_users_tokens_are_dropped_with_the_password_and_all_with_auth() -> None:
    store = with_users()
    store.enable()
    tokens = store.tokens

    def identifies(token: str) -> bool:
        return tokens.identify(token, store.revision, 0, 0) is not None

    store.authenticate("alice", "a", 1, 0)
    store.authenticate("root", "r", 1, 0)
    store.change_password("alice", TEXT)
    assert (identifies("a.1"), identifies("r.1")) == (False, True)
    store.authenticate("alice", "a", 2, 0)
    store.delete_user("alice")
    assert (identifies("a.2"), identifies("r.1")) == (False, True)
    store.disable()
    assert not identifies("r.1")


def test_a_user_without_password_gets_none() -> None:
    store = new_store()
    store.add_user("cn", UserAddOptions(no_password=True), "")
    assert store.change_password("cn", TEXT) is None
    assert store.user("cn").password == b""  # type: ignore[union-attr]
