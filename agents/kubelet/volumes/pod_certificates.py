"""Projected pod certificates, signed for their pod by a signer.

    key ─► PodCertificateRequest ─► a signer answers ─► key and chain, until `beginRefreshAt`
                                                        └► then once more, with another key

The private key never leaves the node. It is in memory and in the volume, so a kubelet that starts
anew asks anew. A request that failed is made again after a while, one that was denied is not.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from kvstack.agents.client.api import Api
from kvstack.agents.client.back_off import FailureBackOff
from kvstack.agents.client.built_in import POD_CERTIFICATE_REQUESTS, SERVICE_ACCOUNTS
from kvstack.agents.client.informer import Informer
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.kubelet.pods.environment import ConfigurationError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import parse_time
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

_Key: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

_RSA_EXPONENT: Final = 65537
_KEYS: Final[Mapping[str, Callable[[], _Key]]] = {
    "RSA3072": lambda: rsa.generate_private_key(_RSA_EXPONENT, 3072),
    "RSA4096": lambda: rsa.generate_private_key(_RSA_EXPONENT, 4096),
    "ECDSAP256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ECDSAP384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ECDSAP521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "ED25519": ed25519.Ed25519PrivateKey.generate,
}
_NAME_MAX: Final = 240
"""The maximum length of a pod's name in that of its requests: the server adds five characters."""
_RETRY_S: Final = 10.0
_RETRY_MAX_S: Final = 300.0
_DEFAULT_S: Final = 86400
_ISSUED, _DENIED = "Issued", "Denied"
_ANSWERS: Final = (_ISSUED, _DENIED, "Failed")
_SourceKey: TypeAlias = tuple[str, str, int]
"""Uid of a pod, name of a volume, and which source of it."""


@dataclass(slots=True)
class Credential:
    """A key with its certificate."""

    key: bytes
    """PEM, PKCS#8."""
    chain: bytes
    """PEM, the leaf first."""
    refresh_s: float
    """When another one is requested, since 1970."""
    ends_s: float


@dataclass(slots=True)
class _CertificateSource:
    """One source of a volume."""

    current: Credential | None = None
    request: str = ""
    """Name of the request that is under way; empty: none is."""
    key: bytes = b""
    """The private key of that request."""
    again_s: float = 0.0
    """When another request may be made."""
    problem: str = ""
    is_denied: bool = False

    def is_good(self, now_s: float) -> bool:
        """Whether there is a valid certificate."""
        return self.current is not None and now_s < self.current.ends_s


class PodCertificates:
    """The certificates of one node's pods."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        node: Callable[[], Object],
        on_change: Callable[[str], None],
    ) -> None:
        """node: returns its object; on_change: called with the uid of a pod that was answered."""
        self._api = api
        self._clock = clock
        self._random = random
        self._logger = logger
        self._node = node
        self._on_change = on_change
        self._states: dict[_SourceKey, _CertificateSource] = {}
        self._back_off = FailureBackOff(clock, _RETRY_S, _RETRY_MAX_S)
        self._informer: Informer | None = None
        self._task: asyncio.Task[None] | None = None

    async def credential(self, pod: Object, volume: str, number: int, source: Object) -> Credential:
        """Return what a source of a volume shows, the number-th; ConfigurationError, ApiError.

        ConfigurationError: it is not there yet, and the pod is looked at again when it is.
        """
        self._follow()
        key = (pod["metadata"]["uid"], volume, number)
        state = self._states.setdefault(key, _CertificateSource())
        try:
            await self._advance(pod, key, state, source)
        except (ApiError, UnreachableError) as error:
            if not state.is_good(self._clock.now_s()):
                raise
            state.again_s = self._clock.now_s() + self._back_off.next_s(key)
            text = "a certificate of a pod was not renewed"
            self._logger.warning(text, pod=key[0], volume=volume, error=str(error))
        if state.current is not None and state.is_good(self._clock.now_s()):
            return state.current
        signer = source["signerName"]
        raise ConfigurationError(state.problem or f"signer {signer} has not answered yet")

    async def _advance(
        self, pod: Object, key: _SourceKey, state: _CertificateSource, source: Object
    ) -> None:
        """Take the answer to a request, or make a new one if due; ApiError, UnreachableError."""
        if state.request:
            await self._look(pod, key, state)
        now_s, current = self._clock.now_s(), state.current
        is_due = current is None or current.refresh_s <= now_s
        if is_due and not state.request and not state.is_denied and state.again_s <= now_s:
            await self._ask(pod, state, source)

    def forget(self, uid: str) -> None:
        """Keep the keys of a pod no longer."""
        for key in [key for key in self._states if key[0] == uid]:
            del self._states[key]
            self._back_off.forget(key)

    async def close(self) -> None:
        """Stop waiting for signers."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _follow(self) -> None:
        if self._task is not None:
            return
        fields = f"spec.nodeName={self._node()['metadata']['name']}"
        self._informer = Informer(
            self._api,
            POD_CERTIFICATE_REQUESTS,
            self._clock,
            self._random,
            self._logger,
            fields=fields,
        )
        self._informer.on_change(self._changed)
        loop = asyncio.get_running_loop()
        work = self._informer.run()
        self._task = loop.create_task(work, name="informer of certificates of pods")

    def _changed(self, old: Object | None, new: Object | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        if new is not None and _answer(new) is None:
            return
        for (uid, _, _), wanted in list(self._states.items()):
            if wanted.request == name:
                self._on_change(uid)

    async def _ask(self, pod: Object, state: _CertificateSource, source: Object) -> None:
        meta = pod["metadata"]
        account = pod["spec"].get("serviceAccountName") or "default"
        service_account = await self._api.get(SERVICE_ACCOUNTS, meta["namespace"], account)
        key, request = await asyncio.to_thread(_key_and_request, source["keyType"])
        node = self._node()["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        spec = {
            "signerName": source["signerName"],
            "podName": meta["name"],
            "podUID": meta["uid"],
            "serviceAccountName": account,
            "serviceAccountUID": service_account["metadata"]["uid"],
            "nodeName": node["name"],
            "nodeUID": node["uid"],
            "maxExpirationSeconds": source.get("maxExpirationSeconds") or _DEFAULT_S,
            "stubPKCS10Request": base64.b64encode(request).decode(),
        }
        if annotations := source.get("userAnnotations"):
            spec["unverifiedUserAnnotations"] = annotations
        created = await self._api.create(
            POD_CERTIFICATE_REQUESTS,
            meta["namespace"],
            {
                "apiVersion": POD_CERTIFICATE_REQUESTS.api_version,
                "kind": POD_CERTIFICATE_REQUESTS.kind,
                "metadata": {
                    "generateName": f"req-{meta['name'][:_NAME_MAX]}-",
                    "ownerReferences": [owner],
                },
                "spec": spec,
            },
        )
        state.request, state.key, state.problem = created["metadata"]["name"], key, ""

    async def _look(self, pod: Object, key: _SourceKey, state: _CertificateSource) -> None:
        """Take the answer to a request, if there is one."""
        found = await self._request(pod["metadata"]["namespace"], state.request)
        answer = None if found is None else _answer(found)
        if found is not None and answer is None:
            return
        if found is not None and answer is not None and answer["type"] == _ISSUED:
            state.current = _credential(state.key, found["status"])
            self._back_off.forget(key)
        elif answer is not None:
            reason, text = answer.get("reason", ""), answer.get("message", "")
            state.problem = f"request {state.request} {answer['type']}: {reason}: {text}"
            state.is_denied = answer["type"] == _DENIED
            state.again_s = self._clock.now_s() + self._back_off.next_s(key)
        state.request, state.key = "", b""  # answered, or cleaned up

    async def _request(self, namespace: str, name: str) -> Object | None:
        """Return a request, None: it no longer exists; ApiError."""
        if self._informer is not None:
            known = self._informer.store.get(f"{namespace}/{name}")
            if known is not None and _answer(known) is not None:
                return known
        try:
            return await self._api.get(POD_CERTIFICATE_REQUESTS, namespace, name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            return None


def _answer(request: Object) -> Object | None:
    """Return the condition that says how a request was answered; None: it was not yet."""
    conditions = (request.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] in _ANSWERS), None)


def _credential(key: bytes, status: Object) -> Credential:
    times = (parse_time(status[name]).seconds for name in ("beginRefreshAt", "notAfter"))
    return Credential(key, status["certificateChain"].encode(), *map(float, times))


def _key_and_request(kind: str) -> tuple[bytes, bytes]:
    """Return a key as PEM, and a request that shows its public half, in DER."""
    key = _KEYS[kind]()
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    request = builder.sign(key, algorithm)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return pem, request.public_bytes(serialization.Encoding.DER)
