"""A kind of custom resources with ten rules in CEL, and an object that keeps them."""

from typing import Any

RULES = (
    "self.replicas >= self.minReplicas && self.replicas <= self.maxReplicas",
    "self.name.matches('^[a-z0-9-]+$')",
    "self.tags.all(t, t.size() < 20)",
    "!has(self.paused) || !self.paused || self.replicas == 0",
    "self.ports.all(p, p.port > 0 && p.port < 65536)",
    "self.ports.exists_one(p, p.name == 'http')",
    "self.name.size() <= 63 && self.name.startsWith('w')",
    "self.window == '' || duration(self.window) < duration('24h')",
    "self.mode in ['a', 'b', 'c']",
    "self.tags.size() <= self.replicas * 10",
)
_TEXT = {"type": "string"}
_INTEGER = {"type": "integer"}
_PORT = {"type": "object", "properties": {"name": _TEXT, "port": _INTEGER}}
SPEC: dict[str, Any] = {
    "type": "object",
    "x-kubernetes-validations": [{"rule": each} for each in RULES],
    "properties": {
        **{each: {**_TEXT, "maxLength": 100} for each in ("name", "window", "mode")},
        **dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), _INTEGER),
        "paused": {"type": "boolean"},
        "tags": {"type": "array", "maxItems": 10, "items": {**_TEXT, "maxLength": 50}},
        "ports": {"type": "array", "maxItems": 10, "items": _PORT},
    },
}
OBJECT: dict[str, Any] = {
    "metadata": {"name": "w"},
    "spec": {
        "name": "w-1",
        "replicas": 3,
        "minReplicas": 1,
        "maxReplicas": 5,
        "tags": ["x", "y", "z"],
        "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}],
        "window": "1h",
        "mode": "b",
    },
}
