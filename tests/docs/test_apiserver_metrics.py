"""docs/apiserver-metrics.md has what the API server tells on its page; `--rewrite` writes it.

The table is made from the families of a server with everything turned on, which need not run.
"""

import asyncio
from pathlib import Path

from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.server.settings.audit_options import AuditOptions, AuditSinkOptions
from kvstack.apiserver.server.settings.options import EncryptionOptions
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.metrics.exposition import FamilyKind
from tests.apiserver.server.in_process import options
from tests.apiserver.support.memory_store import MemoryStore

DOCS = Path(__file__).parents[2] / "docs" / "apiserver-metrics.md"
HEAD = """\
# Metrics of the API server

`GET /metrics` answers in Prometheus's text format, to whom RBAC lets read it. Names, labels and
buckets are those of Kubernetes 1.37.1: of what its dashboards and alerts look at, not of everything
that it counts.

*works*: as there. *differs*: how. This table is made by `tests/docs/test_apiserver_metrics.py`.
The store's own page has [another table](metrics.md).

| metric | kind | |
|---|---|---|
"""
DIFFERS = {
    "apiserver_cel_compilation_duration_seconds": "all rules of a schema together",
    "apiserver_cel_evaluation_duration_seconds": "all rules for one object together",
    "apiserver_longrunning_requests": "watches alone",
    "apiserver_mutating_admission_policy_check_duration_seconds": "a mutation at a time",
    "apiserver_request_sli_duration_seconds": "webhooks are not taken off",
    "apiserver_request_terminations_total": "answers 429 and 504, but for those of evictions",
    "apiserver_resource_objects": "as the copy in memory has them now",
    "apiserver_storage_objects": "as the copy in memory has them now; with the label `group`",
    "apiserver_validating_admission_policy_check_duration_seconds": (
        "all expressions of a policy for one binding and one parameter"
    ),
    "apiserver_crd_conversion_webhook_duration_seconds": (
        "calls; what was converted before is not converted again"
    ),
    "authentication_token_cache_active_fetch_count": "`in_flight` alone: nobody is kept waiting",
    "etcd_request_duration_seconds": (
        "what reaches the store; most reads are answered by the copy in memory"
    ),
    "etcd_requests_total": "what reaches the store; most reads are answered by the copy in memory",
    "go_threads": "threads of the process; the other go_* are Go's own",
    "kubernetes_build_info": "of this program",
}
ENCRYPTION = """\
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- {resources: [secrets], providers: [{identity: {}}]}
"""


def served(directory: Path) -> dict[str, FamilyKind]:
    """Return the families of a server, without those of any process."""
    policy, encryption = directory / "policy.yaml", directory / "encryption.yaml"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
    encryption.write_text(ENCRYPTION)
    given = options(
        directory,
        audit=AuditOptions(str(policy), AuditSinkOptions(str(directory / "audit.log"))),
        encryption=EncryptionOptions(str(encryption)),
    )

    async def main() -> dict[str, FamilyKind]:
        server = ApiServer(MemoryStore(), given, LineLogger([], "fatal"))
        try:
            found = await server.site.metrics.readings()
        finally:
            await server.audit.stop()
            await server.webhooks.close()
            await server.security.close()
        return {
            name: kind for name, kind, _, _ in found if not name.startswith(("process_", "os_"))
        }

    return asyncio.run(main())


def test_the_page_of_the_api_server(tmp_path: Path, rewrite: bool) -> None:  # noqa: FBT001
    families = served(tmp_path)
    assert not DIFFERS.keys() - families.keys()
    rows = [
        f"| `{name}` | {kind.value} | {'differs: ' + DIFFERS[name] if name in DIFFERS else 'works'}"
        " |\n"
        for name, kind in sorted(families.items())
    ]
    now = HEAD + "".join(rows)
    if rewrite:
        DOCS.write_text(now)
    assert DOCS.read_text() == now, f"run: pytest --rewrite {__file__}"
