from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.registry.encryption.ciphers import (
    AesCbc,
    AesGcm,
    Cipher,
    ExtendedNonce,
    SecretBox,
)
from kvstack.apiserver.registry.encryption.providers import (
    Identity,
    NamedProvider,
    OneKey,
    Prefixed,
)
from kvstack.apiserver.registry.transformer import TransformError

KEY = bytes(range(32))
MAKERS: list[Callable[[bytes], Cipher]] = [AesCbc, AesGcm, ExtendedNonce, SecretBox]
BOUND = (AesGcm, ExtendedNonce)


@pytest.mark.parametrize("make", MAKERS)
@given(plain=st.binary(max_size=100), context=st.binary(max_size=20))
def test_what_is_sealed_can_be_opened(
    make: Callable[[bytes], Cipher], plain: bytes, context: bytes
) -> None:
    cipher = make(KEY)
    sealed = cipher.seal(plain, context)
    assert cipher.open(sealed, context) == plain
    assert sealed != cipher.seal(plain, context), "a nonce was used twice"


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("size", [0, 1, 15, 23, 40])
def test_what_is_cut_off_is_reported(make: Callable[[bytes], Cipher], size: int) -> None:
    with pytest.raises(TransformError):
        make(KEY).open(make(KEY).seal(b"x" * 50, b"")[:size], b"")


@pytest.mark.parametrize("make", [AesGcm, ExtendedNonce, SecretBox])
def test_what_was_changed_is_reported(make: Callable[[bytes], Cipher]) -> None:
    sealed = bytearray(make(KEY).seal(b"secret", b"k"))
    sealed[-1] ^= 1
    with pytest.raises(TransformError):
        make(KEY).open(bytes(sealed), b"k")
    with pytest.raises(TransformError):
        make(bytes(32)).open(make(KEY).seal(b"secret", b"k"), b"k")


@pytest.mark.parametrize("make", BOUND)
def test_a_value_belongs_to_its_key_in_the_store(make: Callable[[bytes], Cipher]) -> None:
    sealed = make(KEY).seal(b"secret", b"/registry/secrets/a/b")
    with pytest.raises(TransformError, match="cipher: message authentication failed"):
        make(KEY).open(sealed, b"/registry/secrets/a/c")


def prefixed(*names: str) -> Prefixed:
    """Providers with a key each; `-` is identity."""
    return Prefixed(
        [
            NamedProvider(b"", Identity())
            if name == "-"
            else NamedProvider(
                f"k8s:enc:aesgcm:v1:{name}:".encode(), OneKey(AesGcm(name.encode().ljust(16)))
            )
            for name in names
        ],
        "no matching prefix found",
    )


def test_the_first_seals_and_all_open() -> None:
    old, new = prefixed("a"), prefixed("b", "a")
    sealed = old.seal(b"x", b"k")
    assert sealed.startswith(b"k8s:enc:aesgcm:v1:a:")
    assert old.open(sealed, b"k") == (b"x", False)
    assert new.open(sealed, b"k") == (b"x", True)
    assert new.open(new.seal(b"x", b"k"), b"k") == (b"x", False)


def test_plain_values_need_identity() -> None:
    with pytest.raises(TransformError, match="no matching prefix found"):
        prefixed("a").open(b"{}", b"k")
    assert prefixed("a", "-").open(b"{}", b"k") == (b"{}", True)
    sealed = prefixed("a").seal(b"x", b"k")
    assert prefixed("-", "a").open(sealed, b"k") == (b"x", True)
    with pytest.raises(TransformError, match="no matching prefix found"):
        prefixed("-").open(sealed, b"k")


def test_providers_with_the_same_prefix_are_all_tried() -> None:
    def of(key: bytes) -> NamedProvider:
        return NamedProvider(b"k8s:enc:aesgcm:v1:k:", OneKey(AesGcm(key)))

    first, second = of(b"1" * 16), of(b"2" * 16)
    sealed = Prefixed([second], "").seal(b"x", b"k")
    assert Prefixed([first, second], "").open(sealed, b"k") == (b"x", True)
    with pytest.raises(TransformError) as caught:
        Prefixed([first, first], "").open(sealed, b"k")
    assert str(caught.value) == "cipher: message authentication failed"
