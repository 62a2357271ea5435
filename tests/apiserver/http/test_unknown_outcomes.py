"""A write whose answer was lost is not made a second time, and is not told as refused."""

from collections.abc import Awaitable, Callable, Sequence

import pytest

from kvstore.client.errors import OutcomeUnknownError
from kvstore.client.values import Compare, Op, TxnResult
from tests.apiserver.support.memory_store import MemoryStore
from tests.apiserver.support.sites import Api, KeptAnswer, site
from tests.apiserver.support.virtual_time import run

MAPS = "/api/v1/namespaces/a/configmaps"
Ask = Callable[[Api, dict[str, object]], Awaitable[KeptAnswer]]


async def _put(api: Api, seen: dict[str, object]) -> KeptAnswer:
    return await api.ask("PUT", f"{MAPS}/x", {**seen, "data": {"a": "2"}})


async def _patch(api: Api, seen: dict[str, object]) -> KeptAnswer:
    operation = {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/again"}
    return await api.ask(
        "PATCH", f"{MAPS}/x", [operation], content_type="application/json-patch+json"
    )


async def _delete(api: Api, seen: dict[str, object]) -> KeptAnswer:
    return await api.ask("DELETE", f"{MAPS}/x")


def lose_answers(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make transactions as ever, and let nobody know."""
    make = store.txn

    async def txn(
        compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        await make(compares, success, failure)
        raise OutcomeUnknownError("connection reset")

    monkeypatch.setattr(store, "txn", txn)


@pytest.mark.parametrize("ask", [_put, _patch, _delete])
def test_a_lost_answer(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(api: Api) -> None:
        body = {"metadata": {"name": "x", "finalizers": ["example.com/one"]}, "data": {"a": "1"}}
        made = await api.ask("POST", MAPS, body)
        await api.world.settle()
        store = api.world.store
        before = store.calls.count("txn")
        with monkeypatch.context() as patched:
            lose_answers(store, patched)
            answer = await ask(api, made.json)
        assert (answer.status, answer.json["message"]) == (500, "connection reset")
        assert not answer.header("retry-after")  # or clients would do it twice
        assert store.calls.count("txn") == before + 1
        await api.world.settle()
        stored = (await api.ask("GET", f"{MAPS}/x")).json
        assert stored["metadata"]["resourceVersion"] != made.json["metadata"]["resourceVersion"]
        assert stored["metadata"]["finalizers"].count("example.com/again") <= 1

    async def main() -> None:
        async with site() as api:
            await story(api)

    run(main())
