"""Tokens of service accounts that are kept in Secrets: filled in, and removed with their account.

    Secret of type kubernetes.io/service-account-token, annotation …/service-account.name: bot
      ─► data: token (without an end), ca.crt, namespace; annotation …/service-account.uid

Keys: `secret/<namespace>/<name>`, `account/<namespace>/<name>`.
"""

import base64
from collections.abc import Generator, Iterable, Sequence
from typing import Final

from kvstack.agents.client.built_in import SECRETS, SERVICE_ACCOUNTS
from kvstack.agents.client.object_store import key_of, split_key
from kvstack.agents.reconcile.plan import (
    BackOff,
    BaseController,
    Delete,
    Get,
    Identity,
    Index,
    Outcome,
    Plan,
    Step,
    Update,
    View,
    Watch,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import (
    SERVICE_ACCOUNT_NAME_ANNOTATION,
    SERVICE_ACCOUNT_TOKEN_TYPE,
    SERVICE_ACCOUNT_UID_ANNOTATION,
)
from kvstack.component.certs.service_account_keys import SigningKey

_ISSUER: Final = "kubernetes/serviceaccount"
_CLAIM: Final = "kubernetes.io/serviceaccount/"
_INDEX: Final = "service account of token"


class AccountTokens(BaseController):
    """Keeps tokens in Secrets."""

    back_off = BackOff(retries_max=10)

    def __init__(self, key: bytes, root_ca: str) -> None:
        """key: PEM; raises UnusableKeyError. root_ca: PEM."""
        self.identity: Identity = Identity(
            "serviceaccount-token-controller", "", "tokens-controller"
        )
        self.watches: Sequence[Watch] = (
            Watch(SECRETS, _keys_of_secret),
            Watch(SERVICE_ACCOUNTS, _keys_of_account),
        )
        self.indexes = (Index(SECRETS, _INDEX, _account_of_token),)
        self._key: Final = SigningKey(key)
        self._ca: Final = base64.b64encode(root_ca.encode()).decode()

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for a Secret or an account."""
        what, _, name = key.partition("/")
        if what == "account":
            known = view.get(SERVICE_ACCOUNTS, name)
            for secret in view.by_index(SECRETS, _INDEX, name):
                if known is None or not _is_of(secret, known):
                    yield from _delete(secret)
            return None
        token_secret = view.get(SECRETS, name)
        if token_secret is None:
            for account in view.list(SERVICE_ACCOUNTS, split_key(name)[0]):
                yield from _drop_reference(account, split_key(name)[1])
        elif token_secret.get("type") == SERVICE_ACCOUNT_TOKEN_TYPE:
            owner = yield from _account(token_secret, view)
            if owner is None:
                yield from _delete(token_secret)
            else:
                yield from self._fill(token_secret, owner)
        return None

    def _fill(self, secret: Object, account: Object) -> Generator[Step, list[Outcome], None]:
        """Fill in what is missing in a Secret, if it is still as it was seen."""
        if not self._missing(secret, account):
            return
        meta = secret["metadata"]
        [found] = yield [Get(SECRETS, meta["namespace"], meta["name"])]
        if found.is_not_found:
            return
        live = found.result()
        if live["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            return
        data = {**(live.get("data") or {}), **self._missing(live, account)}
        annotations = {
            **(live["metadata"].get("annotations") or {}),
            SERVICE_ACCOUNT_NAME_ANNOTATION: account["metadata"]["name"],
            SERVICE_ACCOUNT_UID_ANNOTATION: account["metadata"]["uid"],
        }
        live_meta = {**live["metadata"], "annotations": annotations}
        [outcome] = yield [Update(SECRETS, {**live, "metadata": live_meta, "data": data})]
        if not (outcome.is_not_found or outcome.is_conflict):
            outcome.result()

    def _missing(self, secret: Object, account: Object) -> dict[str, str]:
        data = secret.get("data") or {}
        missing: dict[str, str] = {}
        if self._ca and data.get("ca.crt") != self._ca:
            missing["ca.crt"] = self._ca
        if not data.get("namespace"):
            missing["namespace"] = _coded(secret["metadata"]["namespace"])
        if not data.get("token"):
            missing["token"] = _coded(self._key.sign(_claims(secret, account)))
        return missing


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _claims(secret: Object, account: Object) -> dict[str, str]:
    namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
    return {
        "iss": _ISSUER,
        "sub": f"system:serviceaccount:{namespace}:{name}",
        f"{_CLAIM}namespace": namespace,
        f"{_CLAIM}secret.name": secret["metadata"]["name"],
        f"{_CLAIM}service-account.name": name,
        f"{_CLAIM}service-account.uid": account["metadata"]["uid"],
    }


def _annotations(secret: Object) -> dict[str, str]:
    return secret["metadata"].get("annotations") or {}


def _account_of_token(secret: Object) -> tuple[str, ...]:
    name = _annotations(secret).get(SERVICE_ACCOUNT_NAME_ANNOTATION)
    if secret.get("type") != SERVICE_ACCOUNT_TOKEN_TYPE or not name:
        return ()
    return (f"{secret['metadata']['namespace']}/{name}",)


def _is_of(secret: Object, account: Object) -> bool:
    uid = _annotations(secret).get(SERVICE_ACCOUNT_UID_ANNOTATION)
    return not uid or uid == account["metadata"]["uid"]


def _account(secret: Object, view: View) -> Generator[Step, list[Outcome], Object | None]:
    """Return the account of a token; an unknown one is read from the server."""
    namespace = secret["metadata"]["namespace"]
    name = _annotations(secret).get(SERVICE_ACCOUNT_NAME_ANNOTATION, "")
    if not name:
        return None
    known = view.get(SERVICE_ACCOUNTS, f"{namespace}/{name}")
    if known is not None and _is_of(secret, known):
        return known
    [found] = yield [Get(SERVICE_ACCOUNTS, namespace, name)]
    if found.is_not_found:
        return None
    live = found.result()
    return live if _is_of(secret, live) else None


def _delete(secret: Object) -> Generator[Step, list[Outcome], None]:
    meta = secret["metadata"]
    [outcome] = yield [Delete(SECRETS, meta["namespace"], meta["name"], uid=meta["uid"])]
    if not (outcome.is_not_found or outcome.is_conflict):
        outcome.result()


def _drop_reference(account: Object, secret: str) -> Generator[Step, list[Outcome], None]:
    """Remove a deleted Secret from an account's list."""
    known = account.get("secrets") or ()
    rest = [each for each in known if each.get("name") != secret]
    if len(rest) != len(known):
        [outcome] = yield [Update(SERVICE_ACCOUNTS, {**account, "secrets": rest})]
        if not outcome.is_not_found:
            outcome.result()


def _keys_of_secret(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    secret = new or old or {}
    if secret.get("type") == SERVICE_ACCOUNT_TOKEN_TYPE:
        yield f"secret/{key_of(secret)}"


def _keys_of_account(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is None or (old is not None and old["metadata"]["uid"] != new["metadata"]["uid"]):
        yield f"account/{key_of(new or old or {})}"
