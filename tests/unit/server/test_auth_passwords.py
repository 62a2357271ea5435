import threading
import time

import bcrypt
import pytest

from kvstore.batch import Inbox, OffloadedTask, Outbox, TaskKind
from kvstore.server.auth import passwords as auth_passwords
from kvstore.server.auth.password_tasks import PasswordTasks
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
def test_unusual_passwords(password: bytes) -> None:
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

    monkeypatch.setattr(bcrypt, "checkpw", count)
    assert check.matches(hashed, b"secret")
    assert check.matches(hashed, b"secret")
    assert not check.matches(hashed, b"wrong")
    assert not check.matches(hashed, b"wrong")
    assert asked == [b"secret", b"wrong", b"wrong"]
    assert not check.matches(hash_password(b"other", 4), b"secret"), "the password was changed"


def test_what_matched_is_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
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

    def collect(self, tasks: PasswordTasks, count: int) -> Inbox:
        inbox = Inbox()
        while len(inbox.task_results) < count:
            assert self.woken.acquire(timeout=20)
            tasks.fill(inbox)
        return inbox


class Keys:
    can_sign = True

    def sign(self, username: str, revision: int) -> str:
        return f"{username}@{revision}"

    def verify(self, token: str) -> None:
        raise AssertionError(token)


def test_tasks_are_done_in_threads_and_others_left_alone() -> None:
    ears = Ears()
    tasks = PasswordTasks(ears.woken.release, Keys())
    hashed = hash_password(b"secret", 4)
    foreign = OffloadedTask(9, TaskKind.GET_PEER, (b"1", b"/", b""))
    out = Outbox()
    out.tasks = [
        OffloadedTask(1, TaskKind.HASH_PASSWORD, (b"secret", b"4")),
        foreign,
        OffloadedTask(2, TaskKind.CHECK_PASSWORD, (hashed, b"secret")),
        OffloadedTask(3, TaskKind.CHECK_PASSWORD, (hashed, b"wrong")),
        OffloadedTask(4, TaskKind.SIGN_TOKEN, (b"alice", b"7")),
        OffloadedTask(5, TaskKind.HASH_PASSWORD, (b"p" * 99, b"4")),
        OffloadedTask(6, TaskKind.HASH_PASSWORD, (b"p", b"x")),
    ]
    tasks.drain(out)
    assert out.tasks == [foreign]
    inbox = ears.collect(tasks, 6)
    tasks.stop()
    results = {each.id: each for each in inbox.task_results}
    assert PasswordCheck().matches(results[1].body, b"secret")
    assert (results[2].error, results[2].body) == ("", b"")
    assert results[3].error == "the password is wrong"
    assert results[4].body == b"alice@7"
    assert "72 bytes" in results[5].error
    assert results[6].error


def test_without_keys_nothing_is_signed() -> None:
    ears = Ears()
    tasks = PasswordTasks(ears.woken.release, None)
    tasks.start([OffloadedTask(1, TaskKind.SIGN_TOKEN, (b"alice", b"7"))])
    [result] = ears.collect(tasks, 1).task_results
    tasks.stop()
    assert result.error == "no keys are configured to sign with"


def test_what_waits_is_dropped_at_the_end() -> None:
    tasks = PasswordTasks(lambda: None, None)
    tasks.stop()
    tasks.start([OffloadedTask(each, TaskKind.HASH_PASSWORD, (b"p", b"8")) for each in range(200)])
    tasks.stop()
    inbox = Inbox()
    tasks.fill(inbox)
    assert len(inbox.task_results) < 200
