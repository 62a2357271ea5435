import threading

import bcrypt
import pytest

from kvstore.batch import Errand, ErrandKind, Inbox, Outbox
from kvstore.server.auth import passwords as auth_passwords
from kvstore.server.auth.password_tasks import PasswordErrands
from kvstore.server.auth.passwords import PasswordCheck, hash_password


def test_hashes_are_as_gos() -> None:
    hashed = hash_password(b"secret", 4)
    assert hashed.startswith(b"$2a$04$")
    assert len(hashed) == 60
    check = PasswordCheck()
    assert check.matches(hashed, b"secret")
    assert not check.matches(hashed, b"Secret")
    assert not check.matches(hashed, b"")


@pytest.mark.parametrize("password", [b"", b"a\0b", b"\xff\xfe", b"p" * 72])
def test_odd_passwords_are_passwords(password: bytes) -> None:
    hashed = hash_password(password, 4)
    assert PasswordCheck().matches(hashed, password)
    assert not PasswordCheck().matches(hashed, password[:-1] + b"x" if password else b"x")


def test_only_72_bytes_count_and_more_cannot_be_set() -> None:
    hashed = hash_password(b"p" * 72, 4)
    assert PasswordCheck().matches(hashed, b"p" * 72 + b"whatever")
    with pytest.raises(ValueError, match="72 bytes"):
        hash_password(b"p" * 73, 4)


@pytest.mark.parametrize(
    "hashed", [b"", b"plain", b"$2a$04$tooshort", b"\xff" * 60, b"$2a$99$" + b"a" * 53]
)
def test_what_is_no_hash_matches_nothing(hashed: bytes) -> None:
    assert not PasswordCheck().matches(hashed, b"")


def test_hashes_of_other_makers_are_understood() -> None:
    for prefix in (b"2a", b"2b"):
        hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4, prefix=prefix))
        assert PasswordCheck().matches(hashed, b"secret")
    assert PasswordCheck().matches(b"$2y" + hashed[3:], b"secret")


def test_a_pair_that_matched_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = hash_password(b"secret", 4)
    check = PasswordCheck()
    asked: list[bytes] = []
    real = bcrypt.checkpw

    def count(password: bytes, hashed_password: bytes) -> bool:
        asked.append(password)
        return real(password, hashed_password)

    monkeypatch.setattr(auth_passwords.bcrypt, "checkpw", count)
    assert check.matches(hashed, b"secret")
    assert check.matches(hashed, b"secret")
    assert not check.matches(hashed, b"wrong")
    assert not check.matches(hashed, b"wrong")
    assert asked == [b"secret", b"wrong", b"wrong"]
    assert not check.matches(hash_password(b"other", 4), b"secret"), "the password was changed"


def test_what_matched_is_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(auth_passwords.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(auth_passwords, "REMEMBERED_MAX", 2)
    hashed = hash_password(b"secret", 4)
    check = PasswordCheck()
    assert check.matches(hashed, b"secret")
    assert len(check._known) == 1
    now_s = 301.0
    assert check.matches(hash_password(b"a", 4), b"a")
    assert len(check._known) == 1
    for name in (b"b", b"c"):
        assert check.matches(hash_password(name, 4), name)
    assert len(check._known) == 2


class Ears:
    """Waits for wake-ups."""

    def __init__(self) -> None:
        self.woken = threading.Semaphore(0)

    def collect(self, errands: PasswordErrands, count: int) -> Inbox:
        inbox = Inbox()
        while len(inbox.errands) < count:
            assert self.woken.acquire(timeout=20)
            errands.fill(inbox)
        return inbox


class Keys:
    can_sign = True

    def sign(self, username: str, revision: int) -> str:
        return f"{username}@{revision}"

    def verify(self, token: str) -> None:
        raise AssertionError(token)


def test_errands_are_done_in_threads_and_others_left_alone() -> None:
    ears = Ears()
    errands = PasswordErrands(ears.woken.release, Keys())
    hashed = hash_password(b"secret", 4)
    foreign = Errand(9, ErrandKind.GET_PEER, (b"1", b"/", b""))
    out = Outbox()
    out.errands = [
        Errand(1, ErrandKind.HASH_PASSWORD, (b"secret", b"4")),
        foreign,
        Errand(2, ErrandKind.CHECK_PASSWORD, (hashed, b"secret")),
        Errand(3, ErrandKind.CHECK_PASSWORD, (hashed, b"wrong")),
        Errand(4, ErrandKind.SIGN_TOKEN, (b"alice", b"7")),
        Errand(5, ErrandKind.HASH_PASSWORD, (b"p" * 99, b"4")),
        Errand(6, ErrandKind.HASH_PASSWORD, (b"p", b"x")),
    ]
    errands.drain(out)
    assert out.errands == [foreign]
    inbox = ears.collect(errands, 6)
    errands.stop()
    results = {each.id: each for each in inbox.errands}
    assert PasswordCheck().matches(results[1].body, b"secret")
    assert (results[2].error, results[2].body) == ("", b"")
    assert results[3].error == "the password is wrong"
    assert results[4].body == b"alice@7"
    assert "72 bytes" in results[5].error
    assert results[6].error


def test_without_keys_nothing_is_signed() -> None:
    ears = Ears()
    errands = PasswordErrands(ears.woken.release, None)
    errands.start([Errand(1, ErrandKind.SIGN_TOKEN, (b"alice", b"7"))])
    [result] = ears.collect(errands, 1).errands
    errands.stop()
    assert result.error == "there are no keys to sign with"


def test_what_waits_is_dropped_at_the_end() -> None:
    errands = PasswordErrands(lambda: None, None)
    errands.stop()
    errands.start([Errand(each, ErrandKind.HASH_PASSWORD, (b"p", b"8")) for each in range(200)])
    errands.stop()
    inbox = Inbox()
    errands.fill(inbox)
    assert len(inbox.errands) < 200
