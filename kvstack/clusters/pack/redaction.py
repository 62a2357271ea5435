"""Removes secrets from contents before they are given away.

    redacted = Redaction(kinds)
    contents = redacted.contents(contents)
    redacted.counts         {"secret values": 12, "environment variables": 3, …}

    Secrets                     all values; the names stay
    names like secrets          values of environment variables, annotations, ConfigMaps, arguments
    values like secrets         private keys, JSON web tokens, tokens of well-known services, and
                                passwords within URLs, anywhere
    configuration applied last  what it repeats of the object

Values that cannot be decoded are left out whole: protobuf of unknown kinds.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import LAST_APPLIED_ANNOTATION
from kvstack.clusters.contents import ROOT, Contents, LeftOut
from kvstack.clusters.kinds import Kinds, UnreadableError
from kvstack.clusters.pack.masking import (
    ANNOTATIONS,
    CONFIG_VALUES,
    LEFT_OUT,
    SECRET_VALUES,
    Masking,
    is_secret_name,
)
from kvstore.client.values import KeyValue

_SECRETS: Final = b"/registry/secrets/"
_CONFIG_MAPS: Final = b"/registry/configmaps/"


class Redaction:
    """Leaves out what is secret, and counts it."""

    def __init__(self, kinds: Kinds) -> None:
        """kinds: of the contents."""
        self._kinds: Final = kinds
        self._masking: Final = Masking()
        self.counts: Final = self._masking.counts

    def contents(self, contents: Contents) -> Contents:
        """Return contents without secrets."""
        left_out: Counter[str] = Counter()
        rows = self._rows(contents.rows, left_out)
        history = contents.history
        if history is not None:
            history = history._replace(records=self._rows(history.records, Counter()))
        named = [
            LeftOut(what, "its values cannot be decoded, and may have secrets", number)
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
        obj = self._masking.masked(obj)
        if self.counts.total() == before:
            return kv.value
        if key_of is not None and not key_of.rows[0].is_custom:
            return self._kinds.value_of(key_of.prefix, obj)
        obj.get("metadata", {}).pop("resourceVersion", None)
        return orjson.dumps(obj) + b"\n"

    def _secret(self, obj: Object) -> None:
        for name in ("data", "stringData"):
            values = obj.get(name)
            if isinstance(values, dict):
                self.counts[SECRET_VALUES] += len(values)
                obj[name] = dict.fromkeys(values, "")
        annotations = (obj.get("metadata") or {}).get("annotations") or {}
        if annotations.pop(LAST_APPLIED_ANNOTATION, None) is not None:
            self.counts[ANNOTATIONS] += 1

    def _config_map(self, obj: Object) -> None:
        is_release = ((obj.get("metadata") or {}).get("labels") or {}).get("owner", "").lower()
        for member in ("data", "binaryData"):
            values = obj.get(member)
            if not isinstance(values, dict):
                continue
            for name in values:
                if is_secret_name(name) or (is_release == "helm" and name == "release"):
                    values[name] = "" if member == "binaryData" else LEFT_OUT
                    self.counts[CONFIG_VALUES] += 1


def _plain(kv: KeyValue) -> Object:
    """Return the JSON of an unknown kind; UnreadableError if it is not JSON."""
    try:
        obj = orjson.loads(kv.value)
    except ValueError as error:
        raise UnreadableError(str(error)) from error
    if not isinstance(obj, dict):
        raise UnreadableError("not an object")
    return obj
