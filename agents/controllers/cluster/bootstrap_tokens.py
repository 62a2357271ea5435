"""Bootstrap tokens: signatures of the public `cluster-info`, and tokens that have ended.

    kube-public/cluster-info: data.kubeconfig ─► data.jws-kubeconfig-<token id>, by each token
    kube-system/bootstrap-token-<token id>    ─► deleted at its expiration

A signature lets whom a token was given to check what it reads without credentials.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import orjson

from kvstack.agents.client.built_in import CONFIG_MAPS, SECRETS
from kvstack.agents.client.object_store import key_of
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.agents.reconcile.plan import (
    Again,
    BaseController,
    Delete,
    Identity,
    Plan,
    Update,
    View,
    Watch,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import TimeError
from kvstack.apimachinery.well_known import BOOTSTRAP_TOKEN_TYPE

_TOKENS: Final = "kube-system"
CLUSTER_INFO: Final = "kube-public/cluster-info"
_PREFIX: Final = "bootstrap-token-"
_SIGNATURE: Final = "jws-kubeconfig-"
_ID: Final = re.compile(r"[a-z0-9]{6}")


class BootstrapSigner(BaseController):
    """Signs cluster-info."""

    workers = 1

    def __init__(self) -> None:
        """Watch what is signed, and the tokens."""
        name = "bootstrap-signer"
        self.identity: Identity = Identity(f"{name}-controller", name, name)
        self.watches: Sequence[Watch] = (
            Watch(CONFIG_MAPS, _keys_of_info),
            Watch(SECRETS, _keys_for_signer),
        )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for cluster-info."""
        info = view.get(CONFIG_MAPS, CLUSTER_INFO)
        data = {} if info is None else info.get("data") or {}
        content = data.get("kubeconfig")
        if info is None or content is None:
            return None
        wanted = {name: text for name, text in data.items() if not name.startswith(_SIGNATURE)}
        for token_id, secret in _signing_tokens(view, now_s):
            wanted.setdefault(f"{_SIGNATURE}{token_id}", signature(content, token_id, secret))
        if wanted != data:
            [outcome] = yield [Update(CONFIG_MAPS, {**info, "data": wanted})]
            if not outcome.is_not_found:
                outcome.result()
        return None


class TokenCleaner(BaseController):
    """Deletes tokens that have ended."""

    workers = 1

    def __init__(self) -> None:
        """Watch tokens."""
        name = "token-cleaner"
        self.identity: Identity = Identity(f"{name}-controller", name, name)
        self.watches: Sequence[Watch] = (Watch(SECRETS, _keys_of_token),)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one token."""
        secret = view.get(SECRETS, key)
        until_s = None if secret is None else _until_s(secret)
        if secret is None or until_s is None:
            return None
        if until_s > now_s:
            return Again(until_s - now_s)
        meta = secret["metadata"]
        [outcome] = yield [Delete(SECRETS, meta["namespace"], meta["name"], uid=meta["uid"])]
        if not (outcome.is_not_found or outcome.is_conflict):
            outcome.result()
        return None


def signature(content: str, token_id: str, secret: str) -> str:
    """Return a JWS of a text, without the text in it."""
    header = _coded(orjson.dumps({"alg": "HS256", "kid": token_id}))
    signed = f"{header}.{_coded(content.encode())}".encode()
    return f"{header}..{_coded(hmac.digest(secret.encode(), signed, hashlib.sha256))}"


def _coded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _text(secret: Object, name: str) -> str:
    return base64.b64decode((secret.get("data") or {}).get(name) or "").decode("utf-8", "replace")


def _until_s(secret: Object) -> float | None:
    """Return when a token ends; None: never. A time that cannot be read has passed."""
    text = _text(secret, "expiration")
    try:
        return seconds_of(text)
    except TimeError:
        return 0.0


def _signing_tokens(view: View, now_s: float) -> Iterator[tuple[str, str]]:
    """Give id and secret of the tokens that may sign."""
    for secret in view.list(SECRETS, _TOKENS):
        if secret.get("type") != BOOTSTRAP_TOKEN_TYPE:
            continue
        token_id, value = _text(secret, "token-id"), _text(secret, "token-secret")
        until_s = _until_s(secret)
        if (
            secret["metadata"]["name"] == f"{_PREFIX}{token_id}"
            and _ID.fullmatch(token_id)
            and value
            and (until_s is None or until_s > now_s)
            and _text(secret, "usage-bootstrap-signing") == "true"
        ):
            yield token_id, value


def _keys_of_info(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if key_of(new or old or {}) == CLUSTER_INFO:
        yield CLUSTER_INFO


def _keys_of_token(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    secret = new or old or {}
    if secret.get("type") == BOOTSTRAP_TOKEN_TYPE and secret["metadata"]["namespace"] == _TOKENS:
        yield key_of(secret)


def _keys_for_signer(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    for _ in _keys_of_token(old, new, view):
        yield CLUSTER_INFO
