"""The resources of the kinds that policies take parameters from."""

from kvstack.apiserver.policy.admission.policies.parameters import ParameterKind
from kvstack.apiserver.verbs.endpoint import Endpoints


def parameter_kind(endpoints: Endpoints, api_version: str, kind: str) -> ParameterKind | None:
    """Return the served resource of a kind; None: there is none."""
    for row in endpoints.rows:
        if row.kind.kind == kind and row.kind.api_version == api_version:
            endpoint = endpoints.find(row.group, row.version, row.name, "")
            if endpoint is not None and endpoint.collection is not None:
                return ParameterKind(endpoint.resource, row.is_namespaced, endpoint.from_hub)
    return None
