"""Ensures that the image of a container is on the node: pull policies, secrets, back-off.

image = await manager.ensure(pod, container)     StartError: as `state.waiting` shows it
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

import orjson

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import SECRETS
from kvstack.agents.kubelet.runtime.runtime import Image, ImageMissingError, Runtime, StartError
from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.clock import Clock

OnEvent: TypeAlias = Callable[[Object, str, str, str, str], None]
"""Called with pod, name of the container, type, reason and message of an event."""

_BACK_OFF_S: Final = 10.0
_BACK_OFF_MAX_S: Final = 300.0
_PRESENT: Final = 'Container image "{}" already present on machine and can be accessed by the pod'
_NO_SECRET: Final = (
    "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed."
)


class _Wait:
    """The back-off of an image that could not be pulled."""

    __slots__ = ("message", "since_s", "wait_s")

    def __init__(self, since_s: float, wait_s: float, message: str) -> None:
        self.since_s = since_s
        self.wait_s = wait_s
        self.message = message


class ImageManager:
    """The images of one node's containers."""

    def __init__(self, api: Api, runtime: Runtime, clock: Clock, on_event: OnEvent) -> None:
        """Pull with the runtime; secrets are read with the node's API."""
        self._api = api
        self._runtime = runtime
        self._clock = clock
        self._on_event = on_event
        self._pulling = asyncio.Lock()
        self._waits: dict[tuple[str, str], _Wait] = {}

    async def ensure(self, pod: Object, container: Object) -> Image:
        """Return the image of a container; raises StartError."""
        name = container["name"]
        try:
            return await self._ensure(pod, container)
        except StartError as error:
            if error.reason == "ImageInspectError":
                text = f'Failed to inspect image "{container["image"]}": {error.message}'
                self._on_event(pod, name, "Warning", "InspectFailed", text)
            self._on_event(pod, name, "Warning", "Failed", f"Error: {error.reason}")
            raise

    def forget(self, uid: str) -> None:
        """Forget a pod."""
        for key in [key for key in self._waits if key[0] == uid]:
            del self._waits[key]

    async def _ensure(self, pod: Object, container: Object) -> Image:
        name, image = container["name"], container["image"]
        if not is_image_name(image):
            text = (
                f'Failed to apply default image tag "{image}": couldn\'t parse image name '
                f'"{image}": invalid reference format'
            )
            self._on_event(pod, name, "Warning", "InspectFailed", text)
            raise StartError("InvalidImageName", text)
        policy = container.get("imagePullPolicy") or "IfNotPresent"
        if policy != "Always" or not self._runtime.pulls_images:
            try:
                present = await self._runtime.find_image(image)
            except ImageMissingError as error:
                if policy == "Never":
                    text = f'Container image "{image}" is not present with pull policy of Never'
                    self._on_event(pod, name, "Warning", "ErrImageNeverPull", text)
                    raise StartError("ErrImageNeverPull", text) from error
            else:
                self._on_event(pod, name, "Normal", "Pulled", _PRESENT.format(image))
                return present
        return await self._pull(pod, name, image)

    async def _pull(self, pod: Object, name: str, image: str) -> Image:
        key = (pod["metadata"]["uid"], image)
        wait = self._waits.get(key)
        now = self._clock.now_s()
        if wait is not None and now < wait.since_s + wait.wait_s:
            text = f'Back-off pulling image "{image}"'
            self._on_event(pod, name, "Normal", "BackOff", text)
            raise StartError("ImagePullBackOff", f"{text}: ErrImagePull: {wait.message}")
        self._on_event(pod, name, "Normal", "Pulling", f'Pulling image "{image}"')
        credentials, missing = await self._credentials(pod, image)
        async with self._pulling:
            begun = self._clock.now_s()
            try:
                pulled = await self._runtime.pull_image(image, credentials)
            except StartError as error:
                longer = _BACK_OFF_S if wait is None else min(wait.wait_s * 2, _BACK_OFF_MAX_S)
                self._waits[key] = _Wait(self._clock.now_s(), longer, error.message)
                text = f'Failed to pull image "{image}": {error.message}'
                self._on_event(pod, name, "Warning", "Failed", text)
                if missing:
                    text = _NO_SECRET.format(", ".join(missing))
                    self._on_event(pod, "", "Warning", "FailedToRetrieveImagePullSecret", text)
                raise
        self._waits.pop(key, None)
        done = self._clock.now_s()
        text = (
            f'Successfully pulled image "{image}" in {_milliseconds(done - begun)} '
            f"({_milliseconds(done - now)} including waiting). "
            f"Image size: {pulled.size_bytes} bytes."
        )
        self._on_event(pod, name, "Normal", "Pulled", text)
        return pulled

    async def _credentials(
        self, pod: Object, image: str
    ) -> tuple[list[Mapping[str, str]], list[str]]:
        """Return what a pod's secrets hold for the registry of an image, and those not there."""
        registry = image.partition("/")[0]
        if "." not in registry and ":" not in registry and registry != "localhost":
            registry = "docker.io"
        credentials: list[Mapping[str, str]] = []
        missing: list[str] = []
        for reference in pod["spec"].get("imagePullSecrets") or ():
            try:
                secret = await self._api.get(
                    SECRETS, pod["metadata"]["namespace"], reference["name"]
                )
            except ApiError as error:
                if not (error.is_not_found or error.is_forbidden):
                    raise
                missing.append(reference["name"])  # it matters only if the pull fails
            else:
                credentials += credentials_of(secret, registry, image)
        return credentials, missing


def _milliseconds(seconds: float) -> str:
    return durations.text(round(seconds * 1000) * 1_000_000)


def is_image_name(text: str) -> bool:
    """Whether a text is a valid image reference: a registry, a path, a tag, a digest."""
    return _IMAGE_NAME.fullmatch(text) is not None


_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST: Final = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_IMAGE_NAME: Final = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?"
    r"(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?"
)


def credentials_of(secret: Object, registry: str, image: str = "") -> list[Mapping[str, str]]:
    """Return users and passwords for an image that a secret of docker's configuration holds.

    What it names is a registry, with `*` for a part of its name, and perhaps a path in it.
    """
    data = secret.get("data") or {}
    try:
        if ".dockerconfigjson" in data:
            entries = orjson.loads(base64.b64decode(data[".dockerconfigjson"])).get("auths") or {}
        elif ".dockercfg" in data:
            entries = orjson.loads(base64.b64decode(data[".dockercfg"]))
        else:
            return []
        # The longest first: what is said of a part of a registry is nearer than what of all of it.
        found = sorted(entries.items(), key=lambda each: len(_registry_path(each[0])), reverse=True)
        return [
            _login(entry) for key, entry in found if _matches(_registry_path(key), registry, image)
        ]
    except (ValueError, AttributeError, binascii.Error):
        return []  # an invalid configuration has no credentials


def _registry_path(key: str) -> str:
    """Return registry and path of a key; the version of an API is not a path."""
    found = key.removeprefix("https://").removeprefix("http://").rstrip("/")
    return found.removesuffix("/v1").removesuffix("/v2")


def _matches(location: str, registry: str, image: str) -> bool:
    host, _, path = location.partition("/")
    parts, wanted = host.split("."), registry.split(".")
    is_there = host == f"index.{registry}" or (
        len(parts) == len(wanted)
        and all(fnmatchcase(own, one) for own, one in zip(wanted, parts, strict=True))
    )
    inside = image.partition("/")[2]
    return is_there and (not path or inside == path or inside.startswith(path))


def _login(entry: Mapping[str, str]) -> Mapping[str, str]:
    user, password = entry.get("username", ""), entry.get("password", "")
    if not user and entry.get("auth"):
        user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
    return {"username": user, "password": password, "token": entry.get("identitytoken", "")}
