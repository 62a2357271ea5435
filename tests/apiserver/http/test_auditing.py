"""The audit of requests over HTTP: which events there are, and what they say."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kvstack.apiserver.http.auditing import Auditing
from kvstack.apiserver.policy.audit.policy import read_policy
from kvstack.apiserver.policy.audit.sinks import Errors
from tests.apiserver.policy.audit.events import KeptEvents
from tests.apiserver.support.registries import Lines
from tests.apiserver.support.sites import Api, site
from tests.apiserver.support.virtual_time import LoopClock, run

MAPS = "/api/v1/namespaces/a/configmaps"
MERGE = "application/merge-patch+json"
Story = Callable[[Api, KeptEvents], Awaitable[None]]


def run_story(story: Story, rules: str) -> None:
    """Tell a story to a server whose audit goes by rules."""

    async def main() -> None:
        kept = KeptEvents()
        policy = read_policy(f"apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}".encode())
        auditing = Auditing(policy, kept, Errors(Lines()), LoopClock())
        async with site(auditing=auditing) as api:
            await story(api, kept)

    run(main())


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_a_request_is_received_and_completed() -> None:
    async def story(api: Api, kept: KeptEvents) -> None:
        answer = await api.ask("POST", MAPS, config_map("x", a="1"), audit_id="id-7")
        assert answer.header("audit-id") == "id-7"
        received, completed = kept.events
        assert [received["stage"], completed["stage"]] == ["RequestReceived", "ResponseComplete"]
        assert received["stageTimestamp"] == received["requestReceivedTimestamp"]
        assert "responseStatus" not in received
        assert completed["auditID"] == "id-7"
        assert completed["user"] == {
            "username": "admin",
            "groups": ["system:masters", "system:authenticated"],
        }
        assert completed["verb"] == "create"
        assert completed["requestURI"] == MAPS
        assert completed["sourceIPs"] == ["127.0.0.1"]
        assert completed["userAgent"] == "tests/1"
        assert completed["objectRef"] == {
            "resource": "configmaps",
            "namespace": "a",
            "name": "x",
            "apiVersion": "v1",
        }
        assert completed["responseStatus"] == {"metadata": {}, "code": 201}
        assert completed["annotations"] == {
            "authorization.k8s.io/decision": "allow",
            "authorization.k8s.io/reason": "",
        }
        assert "requestObject" not in completed

    run_story(story, "rules: [{level: Metadata}]")


def test_objects_are_recorded_where_the_policy_says_so() -> None:
    async def story(api: Api, kept: KeptEvents) -> None:
        made = await api.ask("POST", MAPS, config_map("x", a="1"))
        assert kept.events[-1]["requestObject"]["data"] == {"a": "1"}
        assert "managedFields" not in kept.events[-1]["requestObject"]["metadata"]
        assert kept.events[-1]["responseObject"] == made.json
        await api.ask("PATCH", f"{MAPS}/x", {"data": {"b": "2"}}, content_type=MERGE)
        assert kept.events[-1]["requestObject"] == {"data": {"b": "2"}}
        listed = await api.ask("GET", MAPS)
        assert kept.events[-1]["responseObject"] == listed.json
        missing = await api.ask("GET", f"{MAPS}/y")
        assert kept.events[-1]["responseObject"] == missing.json
        assert kept.events[-1]["responseStatus"]["reason"] == "NotFound"
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        await api.ask("DELETE", f"{MAPS}/x", options)
        assert kept.events[-1]["requestObject"]["gracePeriodSeconds"] == 0
        assert kept.events[-1]["responseObject"]["status"] == "Success"
        assert kept.events[-1]["responseStatus"]["details"]["name"] == "x"

    run_story(story, "rules: [{level: RequestResponse}]\nomitStages: [RequestReceived]")


def test_the_level_request_has_no_answers() -> None:
    async def story(api: Api, kept: KeptEvents) -> None:
        await api.ask("POST", MAPS, config_map("x", a="1"))
        (event,) = kept.events
        assert "requestObject" in event
        assert "responseObject" not in event
        await api.ask("GET", "/version")
        assert len(kept.events) == 1

    run_story(story, "rules: [{level: Request, namespaces: [a], omitStages: [RequestReceived]}]")


def test_refusals_are_recorded() -> None:
    async def story(api: Api, kept: KeptEvents) -> None:
        await api.ask("GET", MAPS, token="alice-token")
        event = kept.events[-1]
        assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"
        assert event["responseStatus"]["code"] == 403
        assert event["responseStatus"]["reason"] == "Forbidden"
        kept.events.clear()
        await api.ask("GET", MAPS, token="nobody")
        (event,) = kept.events
        assert event["stage"] == "ResponseStarted"
        assert event["user"] == {}
        assert event["responseStatus"] == {
            "metadata": {},
            "status": "Failure",
            "message": "Authentication failed, attempted: bearer",
            "reason": "Unauthorized",
            "code": 401,
        }

    run_story(story, "rules: [{level: Metadata}]")


def test_who_impersonates_somebody_is_recorded() -> None:
    async def story(api: Api, kept: KeptEvents) -> None:
        await api.ask("GET", "/version", impersonate_user="bob")
        event = kept.events[-1]
        assert event["user"]["username"] == "admin"
        assert event["impersonatedUser"]["username"] == "bob"

    run_story(story, "rules: [{level: Metadata}]")


def test_a_watch_is_recorded_when_it_starts() -> None:
    async def story(api: Api, kept: KeptEvents) -> None:
        _, task = api.begin("GET", f"{MAPS}?watch=1&timeoutSeconds=5")
        await asyncio.sleep(1)
        assert [each["stage"] for each in kept.events] == ["RequestReceived", "ResponseStarted"]
        assert kept.events[-1]["responseStatus"] == {"metadata": {}, "code": 200}
        await task
        assert kept.events[-1]["stage"] == "ResponseComplete"
        received, completed = kept.events[0], kept.events[-1]
        assert completed["stageTimestamp"] > received["stageTimestamp"]

    run_story(story, "rules: [{level: Metadata}]")


def test_what_has_to_be_recorded_and_cannot_is_refused() -> None:
    async def story(api: Api, kept: KeptEvents) -> None:
        kept.takes = False
        answer = await api.ask("POST", MAPS, config_map("x"))
        assert answer.status == 500
        assert answer.json["message"] == "Internal error occurred: failed to store audit event"
        kept.takes = True
        assert (await api.ask("GET", f"{MAPS}/x")).status == 404

    run_story(story, "rules: [{level: Metadata}]")


def test_an_unexpected_error_is_a_panic() -> None:
    async def story(api: Api, kept: KeptEvents) -> None:
        async def broken(*_arguments: object) -> None:
            raise ValueError("broken")

        api.site.pages.add("/broken", broken)
        await asyncio.gather(api.ask("GET", "/broken"), return_exceptions=True)
        assert kept.events[-1]["stage"] == "Panic"
        assert kept.events[-1]["responseStatus"]["message"] == (
            "APIServer panic'd: ValueError('broken')"
        )

    run_story(story, "rules: [{level: Metadata}]")


def test_metrics_count_events() -> None:
    async def story(api: Api, _kept: KeptEvents) -> None:
        await api.ask("GET", MAPS)
        page = (await api.ask("GET", "/metrics")).body.decode()
        assert 'apiserver_audit_level_total{level="Metadata"} 1' in page
        assert "apiserver_audit_event_total 2" in page

    run_story(story, "rules: [{level: Metadata, namespaces: [a]}]")


def test_addresses_are_those_of_proxies_and_of_the_connection() -> None:
    async def story(api: Api, kept: KeptEvents) -> None:
        await api.ask(
            "GET", "/version", x_forwarded_for="192.0.2.1, bad, 2001:db8::1", x_real_ip="192.0.2.9"
        )
        assert kept.events[-1]["sourceIPs"] == [
            "192.0.2.1", "2001:db8::1", "192.0.2.9", "127.0.0.1",
        ]  # fmt: skip

    run_story(story, "rules: [{level: Metadata}]")
