"""Names that are generated: one that is taken is made again, for the object as it came."""

from typing import Any

import pytest

from kvstack.apiserver.verbs.writing.identifiers import Identifiers
from tests.apiserver.support.sites import Api, site
from tests.apiserver.support.virtual_time import run

MAPS = "/api/v1/namespaces/a/configmaps"


def give_out(monkeypatch: pytest.MonkeyPatch, *suffixes: str) -> None:
    """Let these be the next suffixes."""
    left = iter(suffixes)
    monkeypatch.setattr(Identifiers, "name_suffix", lambda _self: next(left))


async def make(api: Api) -> tuple[int, dict[str, Any]]:
    body = {"metadata": {"generateName": "x-", "labels": {"a": "b"}}, "data": {"k": "<&>"}}
    made = await api.ask("POST", MAPS, body)
    return made.status, made.json


def test_a_name_that_is_taken_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with site() as api:
            give_out(monkeypatch, "aaaaa", "aaaaa", "aaaaa", "bbbbb")
            first = (await make(api))[1]
            code, second = await make(api)
            assert code == 201
            assert second["metadata"]["name"] == "x-bbbbb"
            assert second["metadata"]["uid"] != first["metadata"]["uid"]
            for each in (first, second):
                for member in ("name", "uid", "resourceVersion", "creationTimestamp"):
                    del each["metadata"][member]
            assert first == second

    run(main())


def test_it_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with site() as api:
            give_out(monkeypatch, *["aaaaa"] * 9)
            assert (await make(api))[0] == 201
            code, refused = await make(api)
            assert (code, refused["reason"]) == (409, "AlreadyExists")

    run(main())
