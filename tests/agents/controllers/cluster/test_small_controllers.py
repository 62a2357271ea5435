"""Legacy tokens, trust bundles and migrations of stored versions: what their plans ask for."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from kvstack.agents.client.built_in import (
    CLUSTER_TRUST_BUNDLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    STORAGE_VERSION_MIGRATIONS,
)
from kvstack.agents.client.discovery import Discovery, ServedResource
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.cluster.legacy_tokens import LegacyTokenCleaner
from kvstack.agents.controllers.cluster.storage_migration import (
    StorageVersionMigrator,
    UnknownResourceError,
)
from kvstack.agents.controllers.cluster.trust_bundles import (
    SIGNER,
    TrustBundlePublisher,
    bundle_name,
)
from kvstack.agents.reconcile.plan import (
    Again,
    Create,
    Delete,
    Discover,
    Get,
    ListLive,
    Patch,
    Update,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time
from tests.agents.support.plans import Answer, drive, refusal, view_of

NOW_S = 1_800_000_000.0  # 2027-01-15T08:00:00Z
DAY_S = 24 * 3600.0
YEAR_S = 365 * DAY_S

# Legacy tokens.


def token(
    name: str = "bot-token",
    *,
    created_days: float = 800,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "a",
            "uid": f"uid of {name}",
            "resourceVersion": "7",
            "creationTimestamp": format_time(NOW_S - created_days * DAY_S),
            "annotations": {"kubernetes.io/service-account.name": "bot"},
            "labels": {f"kubernetes.io/legacy-token-{key}": text for key, text in labels.items()},
        },
        "type": "kubernetes.io/service-account-token",
    }


def clean(secret: Object, *, since: str = "2020-01-01", pods: tuple[Object, ...] = ()) -> list[Any]:
    listed = [{"name": "bot-token"}]
    account = {"metadata": {"name": "bot", "namespace": "a", "uid": "1"}, "secrets": listed}
    view = view_of({SECRETS: [secret], SERVICE_ACCOUNTS: [account], PODS: pods})
    plan = LegacyTokenCleaner(YEAR_S).reconcile("tokens", view, NOW_S)
    asked, again = drive(plan, lambda _action: {"data": {"since": since}})
    assert again == Again(DAY_S, is_routine=True)
    return [each for each in asked if not isinstance(each, Get)]


def test_an_unused_token_is_marked_and_deleted_a_year_later() -> None:
    [marked] = clean(token())
    assert isinstance(marked, Patch)
    assert marked.body == {
        "metadata": {
            "uid": "uid of bot-token",
            "labels": {"kubernetes.io/legacy-token-invalid-since": "2027-01-15"},
        }
    }
    [deleted] = clean(token(labels={"invalid-since": "2026-01-14"}))
    assert deleted == Delete(SECRETS, "a", "bot-token", resource_version="7")
    assert clean(token(labels={"invalid-since": "2026-01-15"})) == []


@pytest.mark.parametrize(
    "secret",
    [
        token(created_days=300),
        token(labels={"last-used": "2026-06-01"}),
        token(labels={"last-used": "some day"}),
        token("of-a-user"),
        {**token(), "type": "Opaque"},
    ],
    ids=["young", "used", "unreadable", "not listed", "no token"],
)
def test_tokens_that_stay(secret: Object) -> None:
    assert clean(secret) == []


def test_a_mounted_token_stays_and_tracking_must_be_old() -> None:
    volumes = [{"name": "v", "secret": {"secretName": "bot-token"}}]
    pod = {"metadata": {"name": "p", "namespace": "a"}, "spec": {"volumes": volumes}}
    assert clean(token(), pods=(pod,)) == []
    assert clean(token(), since="2026-02-01") == []
    assert len(clean(token(), since="2026-01-13")) == 1


# Trust bundles.


def bundle(name: str, text: str, signer: str = SIGNER) -> Object:
    meta = {"name": name, "uid": f"uid of {name}"}
    return {"metadata": meta, "spec": {"signerName": signer, "trustBundle": text}}


def publish(*bundles: Object) -> list[Any]:
    view = view_of({CLUSTER_TRUST_BUNDLES: bundles})
    return drive(TrustBundlePublisher("PEM").reconcile("bundles", view, NOW_S))[0]


def test_the_bundle_of_the_content_is_there_and_no_other() -> None:
    name = bundle_name("PEM")
    assert name.startswith("kubernetes.io:kube-apiserver-serving:")
    assert len(name.rpartition(":")[2]) == 24
    created, deleted = publish(bundle("old", "x"), bundle("other", "x", signer="a/b"))
    assert isinstance(created, Create)
    assert created.obj["metadata"] == {"name": name}
    assert created.obj["spec"] == {"signerName": SIGNER, "trustBundle": "PEM"}
    assert deleted == Delete(CLUSTER_TRUST_BUNDLES, "", "old", "uid of old")
    assert publish(bundle(name, "PEM")) == []
    [updated] = publish(bundle(name, "changed"))
    assert isinstance(updated, Update)


# Migrations.

THINGS = ResourceType("example.com", "v1", "things", "Thing")


def migration(name: str = "m", *, created: float = NOW_S, **conditions: str) -> Object:
    rows = [
        {"type": type_, "status": value, "lastTransitionTime": "then"}
        for type_, value in conditions.items()
    ]
    return {
        "metadata": {"name": name, "creationTimestamp": format_time(created)},
        "spec": {"resource": {"group": "example.com", "resource": "things"}},
        "status": {"conditions": rows} if rows else {},
    }


class Server:
    """Things, and the definition of things."""

    def __init__(self, *versions: int, verbs: str = "get list update patch") -> None:
        self.things = [
            {"metadata": {"name": f"t{version}", "resourceVersion": str(version)}}
            for version in versions
        ]
        self.found = Discovery(
            [ServedResource(THINGS, frozenset(verbs.split()), is_preferred=True)]
        )
        self.definition: Object | None = None
        self.refusals: dict[str, Exception] = {}

    def answer(self, action: Any) -> Answer:
        match action:
            case Discover():
                return {"found": self.found}
            case ListLive():
                return {"items": self.things}
            case Get(resource) if resource == CUSTOM_RESOURCE_DEFINITIONS:
                return self.definition or refusal(404)
            case Get():
                return {"metadata": {"resourceVersion": "10"}}
            case Patch(resource, _, name) if resource == THINGS:
                return self.refusals.get(name, {})
        return {}


def migrate(server: Server, *migrations: Object, now_s: float = NOW_S) -> list[Any]:
    view = view_of({STORAGE_VERSION_MIGRATIONS: migrations})
    name = migrations[0]["metadata"]["name"]
    asked, _ = drive(StorageVersionMigrator().reconcile(name, view, now_s), server.answer)
    return [each for each in asked if not isinstance(each, Get | Discover | ListLive)]


def conditions_of(update: Any) -> dict[str, tuple[str, str, str]]:
    return {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in update.obj["status"]["conditions"]
        if "reason" in each
    }


def limited(name: str = "m", **conditions: Any) -> Object:
    found = migration(name, Running="True", **conditions)
    found["status"]["resourceVersion"] = "10"
    return found


def test_the_oldest_migration_of_a_resource_runs() -> None:
    [begun] = migrate(Server(), migration())
    assert conditions_of(begun) == {
        "Running": ("True", "MigrationRunning", "The migration is running")
    }
    assert migrate(Server(), migration(), migration("a", Running="True")) == []
    assert migrate(Server(), migration(), migration("older", created=NOW_S - 5)) == []
    assert len(migrate(Server(), migration(), migration("done", Running="True"))) == 0
    other = migration("done", created=NOW_S - 5, Running="False", Succeeded="True")
    assert len(migrate(Server(), migration(), other)) == 1


def test_objects_up_to_the_revision_are_written_again() -> None:
    [limit] = migrate(Server(), migration(Running="True"))
    assert limit.obj["status"]["resourceVersion"] == "10"
    server = Server(3, 10, 11)
    *patches, done = migrate(server, limited())
    assert [each.name for each in patches] == ["t3", "t10"]
    assert patches[0].body == {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"resourceVersion": "3"},
    }
    message = "The migration is running, 3 objects verified migrated"
    assert conditions_of(done) == {
        "Running": ("True", "MigrationRunning", message),
        "Succeeded": ("True", "StorageVersionMigrationSucceeded", "Migration completed"),
    }


def test_an_object_that_changed_is_done_and_one_that_is_refused_fails() -> None:
    server = Server(3, 4)
    server.refusals = {"t3": refusal(409), "t4": refusal(404)}
    assert "Succeeded" in conditions_of(migrate(server, limited())[-1])
    server.refusals = {"t4": refusal(422, "no")}
    text = "1/2 not yet migrated. migration encountered unhandled error: no"
    reason = "StorageVersionMigrationFailed"
    assert conditions_of(migrate(server, limited())[-1])["Failed"] == ("True", reason, text)
    server.refusals = {"t4": refusal(503, "busy")}
    with pytest.raises(Exception, match="busy"):
        migrate(server, limited())


def test_a_resource_that_is_not_served() -> None:
    server = Server(verbs="get list")
    [failed] = migrate(server, migration(Running="True"))
    assert conditions_of(failed)["Failed"][2] == (
        'resource "example.com/v1, Resource=things" does not support discovery operations:'
        " [update patch list]"
    )
    server.found = Discovery()
    with pytest.raises(UnknownResourceError):
        migrate(server, migration(Running="True"))
    [failed] = migrate(server, migration(Running="True"), now_s=NOW_S + 61)
    assert conditions_of(failed)["Failed"][2] == "resource does not exist in discovery"


@pytest.mark.parametrize(
    ("result", "observed", "stored", "reason"),
    [
        ("Succeeded", 4, ["v1"], "MigrationSucceeded"),
        ("Succeeded", 3, None, "MigrationSucceeded"),
        ("Failed", 4, None, "MigrationFailed"),
    ],
)
def test_a_definition_forgets_versions_after_success_alone(
    result: str, observed: int, stored: list[str] | None, reason: str
) -> None:
    server = Server()
    condition = {"type": "StorageMigrating", "status": "True", "observedGeneration": observed}
    server.definition = {
        "metadata": {"name": "things.example.com", "resourceVersion": "5", "generation": 4},
        "spec": {"versions": [{"name": "v1", "storage": True}, {"name": "v0", "storage": False}]},
        "status": {"conditions": [condition], "storedVersions": ["v0", "v1"]},
    }
    applied, finished = migrate(server, limited(**{result: "True"}))
    assert applied.subresource == "status"
    assert applied.body["metadata"]["resourceVersion"] == "5"
    assert applied.body["status"].get("storedVersions") == stored
    [row] = applied.body["status"]["conditions"]
    assert (row["status"], row["reason"]) == ("False", reason)
    assert conditions_of(finished)["Running"] == (
        "False",
        "MigrationCompleted",
        "Migration completed",
    )
