"""Secrets in values of JSON, masked and counted: by names, and by what they look like.

masking = Masking()
masking.masked({"name": "DB_PASSWORD", "value": "x"})   → {"name": …, "value": "(left out)"}
masking.counts
"""

import re
from base64 import b64decode
from collections import Counter
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import LAST_APPLIED_ANNOTATION

LEFT_OUT: Final = "(left out)"
SECRET_VALUES: Final = "secret values"
VARIABLES: Final = "environment variables"
ANNOTATIONS: Final = "annotations"
CONFIG_VALUES: Final = "values of ConfigMaps"
ARGUMENTS: Final = "arguments"
TOKENS: Final = "keys and tokens in texts"

_NAME: Final = re.compile(
    r"passw|passphrase|pwd|secret|token|api[-_.]?key|access[-_.]?key|private[-_.]?key|credential"
    r"|authorization|bearer|signature|encryption[-_.]?key|client[-_.]?key|dsn$|conn(ection)?[-_.]?str",
    re.IGNORECASE,
)
_NO_SECRET: Final = re.compile(
    # Names of things that only lead to a secret, and switches.
    r"secret[-_.]?(name|ref|key[-_.]?ref|namespace)$|(token|secret|password)[-_.]?(file|path|dir|ttl"
    r"|expir\w*|url|type|length)$|file$|automount",
    re.IGNORECASE,
)
_ARGUMENT: Final = re.compile(r"^(-{1,2}[\w.-]+[= ]|[A-Za-z_][\w.-]*=)(.+)$", re.DOTALL)
_VALUE: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bxox[abposr]-[\w-]{10,}"
    r"|\bsk_(?:live|test)_\w{10,}|\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}",
    re.DOTALL,
)
_URL_PASSWORD: Final = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)(?=@)")
_BASE64_TEXT: Final = re.compile(r"[A-Za-z0-9+/]{24,}={0,2}")
_DEPTH_MAX: Final = 200


class Masking:
    """Masks values."""

    def __init__(self) -> None:
        self.counts: Final[Counter[str]] = Counter()

    def masked(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """Return a value of JSON without what is secret in it."""
        return self._walk(value, 0)

    def _walk(self, value: Any, depth: int) -> Any:  # noqa: ANN401 - JSON
        """Return a value of JSON without what is secret in it."""
        if depth > _DEPTH_MAX:
            return LEFT_OUT
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self._walk(each, depth + 1) for each in value]
        if isinstance(value, dict):
            return self._members(value, depth)
        return value

    def _members(self, value: Object, depth: int) -> Object:
        members = {
            # Names are not secret, and an object with another name is another object.
            name: self._metadata(each, depth)
            if name == "metadata" and isinstance(each, dict)
            else self._walk(each, depth + 1)
            for name, each in value.items()
        }
        name, text = value.get("name"), value.get("value")
        if isinstance(name, str) and isinstance(text, str) and text and is_secret_name(name):
            members["value"] = LEFT_OUT
            self.counts[VARIABLES] += 1
        for member in ("args", "command"):
            words = members.get(member)
            if isinstance(words, list):
                members[member] = self._words(words)
        return members

    def _metadata(self, metadata: Object, depth: int) -> Object:
        annotations = metadata.get("annotations")
        if not isinstance(annotations, dict):
            return metadata
        return {**metadata, "annotations": self._annotations(annotations, depth)}

    def _annotations(self, annotations: Object, depth: int) -> Object:
        masked: Object = {}
        for name, value in annotations.items():
            if name == LAST_APPLIED_ANNOTATION and isinstance(value, str):
                try:
                    applied = self._walk(orjson.loads(value), depth + 1)
                except ValueError:
                    self.counts[ANNOTATIONS] += 1
                    continue
                masked[name] = orjson.dumps(applied).decode() + "\n"
            elif isinstance(value, str) and value and is_secret_name(name.rpartition("/")[2]):
                masked[name] = LEFT_OUT
                self.counts[ANNOTATIONS] += 1
            else:
                masked[name] = self._walk(value, depth + 1)
        return masked

    def _words(self, words: list[Any]) -> list[Any]:
        """Return arguments without the values of those that are named like secrets."""
        masked: list[Any] = []
        is_next = False
        for word in words:
            given = _ARGUMENT.match(word) if isinstance(word, str) else None
            if is_next and isinstance(word, str) and not word.startswith("-"):
                masked.append(LEFT_OUT)
                self.counts[ARGUMENTS] += 1
            elif given and is_secret_name(given[1].strip("-= ")):
                masked.append(f"{given[1]}{LEFT_OUT}")
                self.counts[ARGUMENTS] += 1
            else:
                masked.append(word)
            is_next = (
                isinstance(word, str)
                and re.fullmatch(r"-{1,2}[\w.-]+", word) is not None
                and is_secret_name(word.strip("-"))
            )
        return masked

    def _text(self, text: str) -> str:
        """Return a text without keys, tokens and passwords."""
        masked, tokens = _VALUE.subn(LEFT_OUT, text)
        masked, passwords = _URL_PASSWORD.subn(rf"\1:{LEFT_OUT}", masked)
        self.counts[TOKENS] += tokens + passwords
        if not tokens and len(text) < 1 << 20 and _BASE64_TEXT.fullmatch(text):
            try:
                plain = b64decode(text, validate=True).decode()
            except ValueError:
                return masked
            if _VALUE.search(plain) or _URL_PASSWORD.search(plain):
                self.counts[TOKENS] += 1
                return ""
        return masked


def is_secret_name(name: str) -> bool:
    """Return whether a name is one that secrets have."""
    return _NAME.search(name) is not None and _NO_SECRET.search(name) is None
