"""What clients see of details that belong to no verb alone: empty lists, times, forms, paths."""

from collections.abc import Awaitable, Callable

from tests.apiserver.support.sites import Api, site
from tests.apiserver.support.virtual_time import run

MAPS = "/api/v1/namespaces/a/configmaps"
SETS = "/apis/apps/v1/namespaces/a/daemonsets"
SCALERS = "/apis/autoscaling/v2/namespaces/a/horizontalpodautoscalers"
PODS = "/api/v1/namespaces/default/pods"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


def run_story(story: Callable[[Api], Awaitable[None]]) -> None:
    """Tell a story to an API of its own."""

    async def main() -> None:
        async with site() as api:
            await story(api)

    run(main())


def scaler(policies: list[object]) -> dict[str, object]:
    """Return an autoscaler whose rules for more pods have these policies."""
    return {
        "metadata": {"name": "x"},
        "spec": {
            "maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "behavior": {"scaleUp": {"policies": policies}},
        },
    }


def test_an_empty_list_is_not_the_same_as_none() -> None:
    """Without policies there are defaults; an empty list of them is refused."""

    async def story(api: Api) -> None:
        refused = await api.ask("POST", SCALERS, scaler([]))
        assert refused.status == 422
        assert refused.json["details"]["causes"][0]["field"] == "spec.behavior.scaleUp.policies"

    run_story(story)


def test_what_is_empty_is_neither_stored_nor_owned() -> None:
    """But it was seen: a PUT of it changes nothing."""

    async def story(api: Api) -> None:
        given = {"metadata": {"name": "x", "labels": {}, "finalizers": []}, "data": {}}
        made = await api.ask("POST", MAPS, given)
        assert made.status == 201
        assert "data" not in made.json
        assert made.json["metadata"].keys().isdisjoint(("labels", "finalizers", "managedFields"))
        put = await api.ask("PUT", f"{MAPS}/x", {**made.json, "data": {}})
        assert put.body == made.body
        patched = await api.ask(
            "PATCH", f"{MAPS}/x", {"metadata": {"labels": {}}, "data": {}}, content_type=MERGE
        )
        assert patched.body == made.body

    run_story(story)


def test_names_of_finalizers_are_checked_again_on_update() -> None:
    """Of some kinds."""

    async def story(api: Api) -> None:
        made = (await api.ask("POST", MAPS, {"metadata": {"name": "x"}})).json
        made["metadata"]["finalizers"] = ["short"]
        refused = await api.ask("PUT", f"{MAPS}/x", made)
        assert refused.json["details"]["causes"][0]["field"] == "metadata.finalizers[0]"

    run_story(story)


def test_a_time_that_is_a_default_is_the_writers() -> None:
    """The field is owned, as others that were given."""

    async def story(api: Api) -> None:
        rule = {
            "metadata": {"name": "x"},
            "spec": {"taint": {"key": "a.b/c", "value": "d", "effect": "NoSchedule"}},
        }
        path = "/apis/resource.k8s.io/v1/devicetaintrules"
        made = await api.ask("POST", path, rule)
        assert made.json["spec"]["taint"]["timeAdded"]
        (entry,) = made.json["metadata"]["managedFields"]
        assert "f:timeAdded" in entry["fieldsV1"]["f:spec"]["f:taint"]

    run_story(story)


def test_who_wrote_an_event_through_another_group_owns_nothing() -> None:
    """Once somebody writes through this one."""

    async def story(api: Api) -> None:
        event = {"metadata": {"name": "x"}, "involvedObject": {"namespace": "a"}, "message": "m"}
        made = await api.ask("POST", "/api/v1/namespaces/a/events", event)
        assert [e["apiVersion"] for e in made.json["metadata"]["managedFields"]] == ["v1"]
        path = "/apis/events.k8s.io/v1/namespaces/a/events/x"
        labels = {"metadata": {"labels": {"b": "c"}}}
        patched = (await api.ask("PATCH", path, labels, content_type=MERGE)).json
        versions = [each["apiVersion"] for each in patched["metadata"]["managedFields"]]
        assert versions == ["events.k8s.io/v1"]

    run_story(story)


def daemon_set() -> dict[str, object]:
    """Return a DaemonSet."""
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    return {
        "metadata": {"name": "x"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }


def test_an_annotation_that_stands_for_a_field_is_in_whole_objects_alone() -> None:
    """Tables and metadata are of the internal version, which has the field."""

    async def story(api: Api) -> None:
        made = (await api.ask("POST", SETS, daemon_set())).json
        name = "deprecated.daemonset.template.generation"
        assert made["metadata"]["annotations"] == {name: "1"}
        table = (await api.ask("GET", f"{SETS}/x", accept=TABLE)).json
        assert "annotations" not in table["rows"][0]["object"]["metadata"]
        partial = (await api.ask("GET", f"{SETS}/x", accept=PARTIAL)).json
        assert "annotations" not in partial["metadata"]
        assert (await api.ask("GET", f"{SETS}/x")).json == made

    run_story(story)


def test_rows_of_pods_that_have_ended_say_so() -> None:
    """Clients may leave them out."""

    async def story(api: Api) -> None:
        account = {"metadata": {"name": "default"}}
        await api.ask("POST", "/api/v1/namespaces/default/serviceaccounts", account)
        for name in ("ended", "waiting"):
            spec = {"containers": [{"name": "c", "image": "i"}]}
            made = await api.ask("POST", PODS, {"metadata": {"name": name}, "spec": spec})
            assert made.status == 201, made.json
        ended = {"status": {"phase": "Failed"}}
        await api.ask("PATCH", f"{PODS}/ended/status", ended, content_type=MERGE)
        rows = (await api.ask("GET", PODS, accept=TABLE)).json["rows"]
        condition = {
            "type": "Completed",
            "status": "True",
            "reason": "Failed",
            "message": "The pod failed.",
        }
        assert [row.get("conditions") for row in rows] == [[condition], None]

    run_story(story)


def test_the_status_of_a_definition_is_no_table() -> None:
    """Also before it is known whether there is one."""

    async def story(api: Api) -> None:
        path = "/apis/apiregistration.k8s.io/v1/apiservices/v1.a.b/status"
        refused = await api.ask("GET", path, accept=TABLE)
        assert (refused.status, refused.json["reason"]) == (406, "NotAcceptable")

    run_story(story)


def test_what_can_only_be_made_has_no_path_for_all_namespaces() -> None:
    """A list of all would be there."""

    async def story(api: Api) -> None:
        assert (await api.ask("GET", "/api/v1/bindings")).status == 404
        assert (await api.ask("POST", "/api/v1/pods", {})).status == 405

    run_story(story)


def test_a_strategic_merge_writes_raw_content_anew() -> None:
    """Its members are sorted then, which is a change of what may not change."""

    async def story(api: Api) -> None:
        path = "/apis/apps/v1/namespaces/a/controllerrevisions"
        strategic = "application/strategic-merge-patch+json"
        labels = {"metadata": {"labels": {"b": "c"}}}
        for name, data, code in (("x", {"a": 1, "b": 2}, 200), ("y", {"b": 2, "a": 1}, 422)):
            given = {"metadata": {"name": name}, "data": data, "revision": 1}
            assert (await api.ask("POST", path, given)).status == 201
            patched = await api.ask("PATCH", f"{path}/{name}", labels, content_type=strategic)
            assert patched.status == code

    run_story(story)


def test_who_applies_to_a_part_of_a_pod_owns_that_part_alone() -> None:
    """Whatever else the configuration has, the endpoint does not write it."""

    async def story(api: Api) -> None:
        pods = "/api/v1/namespaces/a/pods"
        container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}
        made = await api.ask(
            "POST", pods, {"metadata": {"name": "x"}, "spec": {"containers": [container]}}
        )
        assert made.status == 201
        part = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x", "labels": {"a": "b"}},
            "spec": {
                "containers": [{"name": "c", "image": "other", "resources": {}}],
                "ephemeralContainers": [{"name": "d", "image": "i"}],
            },
        }
        path = f"{pods}/x/ephemeralcontainers?fieldManager=m&force=true"
        applied = await api.ask("PATCH", path, part, content_type=APPLY)
        assert applied.status == 200
        assert "labels" not in applied.json["metadata"]
        entries = applied.json["metadata"]["managedFields"]
        (own,) = (each for each in entries if each["manager"] == "m")
        assert own["subresource"] == "ephemeralcontainers"
        assert list(own["fieldsV1"]) == ["f:spec"]
        assert list(own["fieldsV1"]["f:spec"]) == ["f:ephemeralContainers"]

    run_story(story)
