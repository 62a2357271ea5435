"""The mandatory FlowSchemas and priority levels, whose specs are fixed.

Specs by name, in the storage version with defaults.
"""

from typing import Any, Final

EXEMPT: Final = "exempt"
CATCH_ALL: Final = "catch-all"


def _all_requests_of(*groups: str) -> dict[str, Any]:
    return {
        "subjects": [{"kind": "Group", "group": {"name": each}} for each in groups],
        "resourceRules": [
            {
                "verbs": ["*"],
                "apiGroups": ["*"],
                "resources": ["*"],
                "clusterScope": True,
                "namespaces": ["*"],
            }
        ],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }


FLOW_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    EXEMPT: {
        "priorityLevelConfiguration": {"name": EXEMPT},
        "matchingPrecedence": 1,
        "rules": [_all_requests_of("system:masters")],
    },
    CATCH_ALL: {
        "priorityLevelConfiguration": {"name": CATCH_ALL},
        "matchingPrecedence": 10000,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [_all_requests_of("system:unauthenticated", "system:authenticated")],
    },
}
PRIORITY_LEVELS: Final[dict[str, dict[str, Any]]] = {
    EXEMPT: {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
    CATCH_ALL: {
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": 5,
            "limitResponse": {"type": "Reject"},
            "lendablePercent": 0,
        },
    },
}
