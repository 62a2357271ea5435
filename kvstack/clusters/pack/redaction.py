"""What is secret in contents, left out of what is given away.

    redacted = Redaction(kinds)
    contents = redacted.contents(contents)
    redacted.counts         {"secret values": 12, "environment variables": 3, …}

    Secrets                     all values; the names stay
    names like secrets          values of environment variables, annotations, ConfigMaps, arguments
    values like secrets         private keys, JSON web tokens, tokens of well-known services, and
                                passwords within URLs, anywhere
    configuration applied last  what it repeats of the object

What cannot be looked into is left out whole: values in protobuf of kinds that are not known.
"""

import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import orjson

from kvstack.clusters.contents import ROOT, Contents, LeftOut
from kvstack.clusters.kinds import Kinds, Obj, UnreadableError
from kvstore.client.values import KeyValue

LEFT_OUT: Final = "(left out)"
SECRET_VALUES: Final = "secret values"
VARIABLES: Final = "environment variables"
ANNOTATIONS: Final = "annotations"
CONFIG_VALUES: Final = "values of ConfigMaps"
ARGUMENTS: Final = "arguments"
TOKENS: Final = "keys and tokens in texts"

_SECRETS: Final = b"/registry/secrets/"
_CONFIG_MAPS: Final = b"/registry/configmaps/"
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
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


class Redaction:
    """Leaves out what is secret, and counts it."""

    def __init__(self, kinds: Kinds) -> None:
        """kinds: of the contents."""
        self._kinds: Final = kinds
        self.counts: Final[Counter[str]] = Counter()

    def contents(self, contents: Contents) -> Contents:
        """Return contents without secrets."""
        left_out: Counter[str] = Counter()
        rows = self._rows(contents.rows, left_out)
        history = contents.history
        if history is not None:
            history = history._replace(records=self._rows(history.records, Counter()))
        named = [
            LeftOut(what, "its values cannot be looked into for secrets", number)
            for what, number in sorted(left_out.items())
        ]
        return replace(contents, rows=rows, history=history, left_out=[*contents.left_out, *named])

    def _rows(self, rows: Iterable[KeyValue], left_out: Counter[str]) -> list[KeyValue]:
        found = []
        for kv in rows:
            try:
                found.append(kv._replace(value=self._value(kv)) if kv.version else kv)
            except UnreadableError:
                left_out[kv.key.removeprefix(ROOT).decode("utf-8", "replace").split("/")[0]] += 1
        return found

    def _value(self, kv: KeyValue) -> bytes:
        """Return the value of a row, the same bytes if there is nothing secret in it."""
        key_of = self._kinds.find(kv.key)
        if key_of is None:
            obj = _plain(kv)
        else:
            obj = self._kinds.read(kv)
        before = self.counts.total()
        if kv.key.startswith(_SECRETS):
            self._secret(obj)
        elif kv.key.startswith(_CONFIG_MAPS):
            self._config_map(obj)
        obj = self._walk(obj, 0)
        if self.counts.total() == before:
            return kv.value
        if key_of is not None and not key_of.rows[0].is_custom:
            return self._kinds.value_of(key_of.prefix, obj)
        obj.get("metadata", {}).pop("resourceVersion", None)
        return orjson.dumps(obj) + b"\n"

    def _secret(self, obj: Obj) -> None:
        for name in ("data", "stringData"):
            values = obj.get(name)
            if isinstance(values, dict):
                self.counts[SECRET_VALUES] += len(values)
                obj[name] = dict.fromkeys(values, "")
        annotations = (obj.get("metadata") or {}).get("annotations") or {}
        if annotations.pop(_APPLIED, None) is not None:
            self.counts[ANNOTATIONS] += 1

    def _config_map(self, obj: Obj) -> None:
        is_release = ((obj.get("metadata") or {}).get("labels") or {}).get("owner", "").lower()
        for member in ("data", "binaryData"):
            values = obj.get(member)
            if not isinstance(values, dict):
                continue
            for name in values:
                if is_secret_name(name) or (is_release == "helm" and name == "release"):
                    values[name] = "" if member == "binaryData" else LEFT_OUT
                    self.counts[CONFIG_VALUES] += 1

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

    def _members(self, value: Obj, depth: int) -> Obj:
        found = {
            # Names are no secrets, and an object with another name is another object.
            name: self._metadata(each, depth)
            if name == "metadata" and isinstance(each, dict)
            else self._walk(each, depth + 1)
            for name, each in value.items()
        }
        name, text = value.get("name"), value.get("value")
        if isinstance(name, str) and isinstance(text, str) and text and is_secret_name(name):
            found["value"] = LEFT_OUT
            self.counts[VARIABLES] += 1
        for member in ("args", "command"):
            words = found.get(member)
            if isinstance(words, list):
                found[member] = self._words(words)
        return found

    def _metadata(self, metadata: Obj, depth: int) -> Obj:
        annotations = metadata.get("annotations")
        if not isinstance(annotations, dict):
            return metadata
        return {**metadata, "annotations": self._annotations(annotations, depth)}

    def _annotations(self, annotations: Obj, depth: int) -> Obj:
        found: Obj = {}
        for name, value in annotations.items():
            if name == _APPLIED and isinstance(value, str):
                try:
                    applied = self._walk(orjson.loads(value), depth + 1)
                except ValueError:
                    self.counts[ANNOTATIONS] += 1
                    continue
                found[name] = orjson.dumps(applied).decode() + "\n"
            elif isinstance(value, str) and value and is_secret_name(name.rpartition("/")[2]):
                found[name] = LEFT_OUT
                self.counts[ANNOTATIONS] += 1
            else:
                found[name] = self._walk(value, depth + 1)
        return found

    def _words(self, words: list[Any]) -> list[Any]:
        """Return arguments without the values of those that are named like secrets."""
        found: list[Any] = []
        is_next = False
        for word in words:
            given = _ARGUMENT.match(word) if isinstance(word, str) else None
            if is_next and isinstance(word, str) and not word.startswith("-"):
                found.append(LEFT_OUT)
                self.counts[ARGUMENTS] += 1
            elif given and is_secret_name(given[1].strip("-= ")):
                found.append(f"{given[1]}{LEFT_OUT}")
                self.counts[ARGUMENTS] += 1
            else:
                found.append(word)
            is_next = (
                isinstance(word, str)
                and re.fullmatch(r"-{1,2}[\w.-]+", word) is not None
                and is_secret_name(word.strip("-"))
            )
        return found

    def _text(self, text: str) -> str:
        """Return a text without keys, tokens and passwords."""
        found, tokens = _VALUE.subn(LEFT_OUT, text)
        found, passwords = _URL_PASSWORD.subn(rf"\1:{LEFT_OUT}", found)
        self.counts[TOKENS] += tokens + passwords
        if not tokens and len(text) < 1 << 20 and _BASE64_TEXT.fullmatch(text):
            try:
                plain = b64decode(text, validate=True).decode()
            except ValueError:
                return found
            if _VALUE.search(plain) or _URL_PASSWORD.search(plain):
                self.counts[TOKENS] += 1
                return ""
        return found


def is_secret_name(name: str) -> bool:
    """Return whether a name is one that secrets have."""
    return _NAME.search(name) is not None and _NO_SECRET.search(name) is None


def _plain(kv: KeyValue) -> Obj:
    """Return the JSON of a kind that is not known; UnreadableError if it is none."""
    try:
        obj = orjson.loads(kv.value)
    except ValueError as error:
        raise UnreadableError(str(error)) from error
    if not isinstance(obj, dict):
        raise UnreadableError("it is no object")
    return obj
