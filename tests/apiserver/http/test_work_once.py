"""What is done once a request: a YAML body is parsed, and the defaults of its object are filled in.

The defaults of a kind are filled in once more at the end, as the store does: the answer is the
object as reading it back would give it, after preparation and admission, which may leave fields
out. No request does it a third time.
"""

from typing import Any

import pytest

from kvstack.apimachinery.objects.text import yaml_text
from kvstack.apiserver.kinds.table import strategy_of
from kvstack.apiserver.verbs.endpoint import Endpoint
from tests.apiserver.support.sites import site
from tests.apiserver.support.virtual_time import run

APPLY = "application/apply-patch+yaml"
YAML = "application/yaml"
REST = {
    "configmaps": "kind: ConfigMap\ndata: {a: b}",
    "secrets": "kind: Secret\ndata: {a: Yg==}",
    "pods": "kind: Pod\nspec: {containers: [{name: c, image: i}]}",
}


class Counts:
    """How often which work was done since it was last asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, resource: str) -> None:
        self.parsed = self.bodies = self.kinds = 0
        strategy = strategy_of("", resource)
        assert strategy is not None
        parse, body_default, kind_default = yaml_text.parse, Endpoint.default, strategy.default

        def parsed(data: bytes) -> yaml_text.Parsed:
            self.parsed += 1
            return parse(data)

        def of_body(endpoint: Endpoint, obj: Any, now: str = "") -> None:
            self.bodies += 1
            body_default(endpoint, obj, now)

        def of_kind(obj: Any) -> None:
            self.kinds += 1
            kind_default(obj)

        monkeypatch.setattr(yaml_text, "parse", parsed)
        monkeypatch.setattr(Endpoint, "default", of_body)
        monkeypatch.setattr(strategy, "default", of_kind)

    def take(self) -> tuple[int, int, int]:
        """Return parses of YAML, defaults of bodies, and all defaults of the kind; begin anew."""
        found = self.parsed, self.bodies, self.kinds
        self.parsed = self.bodies = self.kinds = 0
        return found


def manifest(resource: str, name: str, **labels: str) -> bytes:
    given = ", ".join(f"{key}: {text}" for key, text in labels.items())
    text = f"apiVersion: v1\nmetadata: {{name: {name}, labels: {{{given}}}}}\n{REST[resource]}\n"
    return text.encode()


@pytest.mark.parametrize("resource", REST)
def test_a_body_is_parsed_once_and_has_its_defaults_once(
    monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    base = f"/api/v1/namespaces/a/{resource}"
    one, two = f"{base}/one", f"{base}/two?fieldManager=me"
    operations = b'[{"op":"add","path":"/metadata/labels/c","value":"d"}]'
    steps: list[tuple[str, str, bytes, str, int]] = [
        ("POST", base, manifest(resource, "one"), YAML, 1),
        ("PUT", one, manifest(resource, "one", a="x"), YAML, 1),
        ("PATCH", one, b'{"metadata":{"labels":{"a":"2"}}}', "application/merge-patch+json", 0),
        (
            "PATCH",
            one,
            b'{"metadata":{"labels":{"a":"3"}}}',
            "application/strategic-merge-patch+json",
            0,
        ),
        ("PATCH", one, operations, "application/json-patch+json", 0),
        ("PATCH", two, manifest(resource, "two"), APPLY, 1),
        ("PATCH", two, manifest(resource, "two", a="x"), APPLY, 1),
        ("PATCH", two, manifest(resource, "two", a="x"), APPLY, 1),
    ]

    async def main() -> None:
        async with site() as api:
            first = await api.ask("POST", base, manifest(resource, "zero"), content_type=YAML)
            assert first.status == 201  # what the kind's collection makes once is there now
            counts = Counts(monkeypatch, resource)
            for method, path, data, media_type, parses in steps:
                answer = await api.ask(method, path, data, content_type=media_type)
                assert answer.status in (200, 201), answer.json
                assert counts.take() == (parses, 1, 2), (method, media_type)
                # Written, and seen by the watch cache, without any more of it.
                assert (await api.ask("GET", path.partition("?")[0])).status == 200
                assert counts.take() == (0, 0, 0)

    run(main())


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
def test_keys_that_stand_twice_are_reported_though_the_body_is_parsed_once(
    monkeypatch: pytest.MonkeyPatch, validation: str
) -> None:
    body = manifest("configmaps", "one").replace(b"{a: b}", b"{a: b, a: c}")
    target = "/api/v1/namespaces/a/configmaps/one?fieldManager=me&fieldValidation=" + validation

    async def main() -> None:
        async with site() as api:
            counts = Counts(monkeypatch, "configmaps")
            answer = await api.ask("PATCH", target, body, content_type=APPLY)
            assert counts.take()[0] == 1
            if validation == "Strict":
                assert answer.status == 400
                assert 'key "a" already set in map' in answer.json["message"]
                return
            assert answer.status == 201
            warnings = answer.all("warning")
            assert any("already set in map" in each for each in warnings) is (validation == "Warn")

    run(main())
