"""Objects with much in them, one of each kind that is served in several versions, in the hub's.

    SAMPLES["horizontalpodautoscalers"]     (the object, its status)

What the other versions have no field for is in them, since that is what is lost first.
"""

from typing import Final

from kvstack.apimachinery.objects.json_object import Object

_STUB: Final = (
    "MIGvMGMCAQAwMDEVMBMGA1UECgwMc3lzdGVtOm5vZGVzMRcwFQYDVQQDDA5zeXN0ZW06bm9kZTpuMTAqMAUGAytlcAMh"
    "ADj/RdH3CA3VeGXtgNh6xUsjgjPsnLlN0FiUt9elLeADoAAwBQYDK2VwA0EAf8OOoUUqGZSA5Odmh7v1COWGKEEuUDho"
    "eO4mBiLUNg73ZcJWDUoLvtFcdvBi9mwT0hrcuIhSHd/4zGlxJQb+Dg=="
)
_BUNDLE: Final = """-----BEGIN CERTIFICATE-----
MIIBPDCB76ADAgECAhQe3NWX+xuedLbxm2v00rrQYvLT6zAFBgMrZXAwEzERMA8G
A1UEAwwIcm9vdC1vbmUwIBcNMjYxMTIyMTI1NzU5WhgPMjEyNjEwMjkxMjU3NTla
MBMxETAPBgNVBAMMCHJvb3Qtb25lMCowBQYDK2VwAyEA92B2sAKYvwLJglsXH98v
cgGqabAiZbK1fot6iC+MQgWjUzBRMB0GA1UdDgQWBBTc6aDATwv0wFFc6c4DWfRP
qRkCpzAfBgNVHSMEGDAWgBTc6aDATwv0wFFc6c4DWfRPqRkCpzAPBgNVHRMBAf8E
BTADAQH/MAUGAytlcANBAKRESOmYqC0ZjwIvF876bn6I+vC5p9/+oNTeNkN8x9ih
LT6QkwwJdVftQf8ULOwnVCeACma5nIaVSPBlqgJx+Aw=
-----END CERTIFICATE-----
"""
_RULES: Final = {
    "resourceRules": [
        {
            "operations": ["CREATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
        }
    ],
    "objectSelector": {"matchLabels": {"never": "matches"}},
}
_REQUESTS: Final = [
    {
        "name": "r0",
        "exactly": {
            "deviceClassName": "gpu",
            "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}],
            "allocationMode": "ExactCount",
            "count": 2,
            "tolerations": [
                {
                    "key": "k",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 5,
                }
            ],
            "capacity": {"requests": {"memory": "1Gi"}},
        },
    },
    {"name": "r1", "firstAvailable": [{"name": "a", "deviceClassName": "gpu", "count": 1}]},
]
_DEVICES: Final = {
    "requests": _REQUESTS,
    "constraints": [{"requests": ["r0"], "matchAttribute": "example.com/model"}],
    "config": [
        {"requests": ["r0"], "opaque": {"driver": "gpu.example.com", "parameters": {"x": 1}}}
    ],
}
_SLICE: Final = {
    "driver": "gpu.example.com",
    "nodeName": "n1",
    "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
    "devices": [
        {
            "name": "d0",
            "attributes": {"model": {"string": "a100"}, "idx": {"int": 0}, "ok": {"bool": True}},
            "capacity": {"memory": {"value": "40Gi"}},
            "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
        },
        {"name": "d1"},
    ],
}
_AUTOSCALER: Final = {
    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
    "minReplicas": 2,
    "maxReplicas": 10,
    # What v1 has a field for comes last: v1 puts it there.
    "metrics": [
        {
            "type": "Resource",
            "resource": {
                "name": "memory",
                "target": {"type": "AverageValue", "averageValue": "100Mi"},
            },
        },
        {
            "type": "External",
            "external": {
                "metric": {"name": "queue", "selector": {"matchLabels": {"q": "a"}}},
                "target": {"type": "AverageValue", "averageValue": "30"},
            },
        },
        {
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 60},
            },
        },
    ],
    "behavior": {
        "scaleUp": {
            "stabilizationWindowSeconds": 10,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 300,
            "selectPolicy": "Disabled",
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
        },
    },
}
_AUTOSCALER_STATUS: Final = {
    "currentReplicas": 3,
    "desiredReplicas": 4,
    "currentMetrics": [
        {
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "current": {"averageUtilization": 50, "averageValue": "100m"},
            },
        }
    ],
    "conditions": [
        {
            "type": "AbleToScale",
            "status": "True",
            "reason": "R",
            "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
}
_CLAIM_STATUS: Final = {
    "allocation": {
        "devices": {
            "results": [
                {"request": "r0", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
            ]
        }
    },
    "reservedFor": [
        {"resource": "pods", "name": "p", "uid": "1d5a3b5e-0000-4000-8000-000000000002"}
    ],
}

SAMPLES: Final[dict[str, tuple[Object, Object]]] = {
    "events": (
        {
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
            "reason": "R",
            "message": "m",
            "type": "Normal",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "action": "A",
            "reportingComponent": "example.com/c",
            "reportingInstance": "h",
            "series": {"count": 3, "lastObservedTime": "2026-01-01T00:00:00.000000Z"},
            "related": {"kind": "Node", "name": "n"},
        },
        {},
    ),
    "horizontalpodautoscalers": ({"spec": _AUTOSCALER}, _AUTOSCALER_STATUS),
    "clustertrustbundles": ({"spec": {"trustBundle": _BUNDLE}}, {}),
    "podcertificaterequests": (
        {
            "spec": {
                "signerName": "example.com/signer",
                "podName": "p",
                "podUID": "1d5a3b5e-0000-4000-8000-000000000002",
                "serviceAccountName": "default",
                "serviceAccountUID": "1d5a3b5e-0000-4000-8000-000000000003",
                "nodeName": "n1",
                "nodeUID": "1d5a3b5e-0000-4000-8000-000000000004",
                "maxExpirationSeconds": 86400,
                "stubPKCS10Request": _STUB,
                "unverifiedUserAnnotations": {"example.com/a": "b"},
            }
        },
        {},
    ),
    "mutatingadmissionpolicies": (
        {
            "spec": {
                "failurePolicy": "Ignore",
                "reinvocationPolicy": "Never",
                "matchConstraints": _RULES,
                "variables": [{"name": "v", "expression": "'x'"}],
                "matchConditions": [{"name": "m", "expression": "true"}],
                "mutations": [
                    {
                        "patchType": "JSONPatch",
                        "jsonPatch": {
                            "expression": "[JSONPatch{op: 'add', path: '/data/x', value: 'y'}]"
                        },
                    }
                ],
            }
        },
        {},
    ),
    "mutatingadmissionpolicybindings": (
        {
            "spec": {
                "policyName": "none",
                "paramRef": {
                    "selector": {"matchLabels": {"a": "b"}},
                    "parameterNotFoundAction": "Allow",
                },
                "matchResources": {"objectSelector": {"matchLabels": {"never": "matches"}}},
            }
        },
        {},
    ),
    "podgroups": (
        {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}},
        {
            "conditions": [
                {
                    "type": "Scheduled",
                    "status": "True",
                    "reason": "R",
                    "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
        },
    ),
    "workloads": (
        {
            "spec": {
                "podGroupTemplates": [{"name": "g", "schedulingPolicy": {"gang": {"minCount": 2}}}]
            }
        },
        {},
    ),
    "leasecandidates": (
        {
            "spec": {
                "leaseName": "l",
                "binaryVersion": "1.37.0",
                "emulationVersion": "1.36.0",
                "strategy": "OldestEmulationVersion",
                "renewTime": "2026-01-01T00:00:00.000000Z",
            }
        },
        {},
    ),
    "deviceclasses": (
        {
            "spec": {
                "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}],
                "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}],
                "extendedResourceName": "example.com/gpu",
            }
        },
        {},
    ),
    "devicetaintrules": (
        {
            "spec": {
                "deviceSelector": {"driver": "gpu.example.com", "pool": "n1"},
                "taint": {
                    "key": "example.com/k",
                    "value": "v",
                    "effect": "NoSchedule",
                    "timeAdded": "2026-01-01T00:00:00Z",
                },
            }
        },
        {},
    ),
    "resourceclaims": ({"spec": {"devices": _DEVICES}}, _CLAIM_STATUS),
    "resourceclaimtemplates": (
        {"spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": _DEVICES}}},
        {},
    ),
    "resourceslices": ({"spec": _SLICE}, {}),
    "storageversionmigrations": (
        {"spec": {"resource": {"group": "apps", "resource": "deployments"}}},
        {},
    ),
}
"""By the prefix that they are stored at."""
