from kvstack.apiserver.apply.conflict import conflict_error
from kvstack.apiserver.apply.managed_fields import applier, updater


def test_one_conflict() -> None:
    error = conflict_error({updater("m", "apps/v1", ""): {"f:spec": {"f:replicas": {}}}})
    assert error.status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Apply failed with 1 conflict: conflict with "m" using apps/v1: .spec.replicas',
        "reason": "Conflict",
        "details": {
            "causes": [
                {
                    "reason": "FieldManagerConflict",
                    "message": 'conflict with "m" using apps/v1',
                    "field": ".spec.replicas",
                }
            ]
        },
        "code": 409,
    }


def test_several_conflicts() -> None:
    error = conflict_error(
        {
            updater("up", "apps/v1", "status"): {"f:status": {"f:ready": {}}},
            applier("m", "scale"): {"f:spec": {"f:replicas": {}}},
            applier('a "b"', ""): {
                "f:spec": {
                    "f:containers": {'k:{"name":"c"}': {".": {}, "f:image": {}}},
                    "f:paused": {},
                }
            },
        }
    )
    assert error.message == (
        "Apply failed with 5 conflicts: "
        'conflicts with "a \\"b\\"":\n'
        "- .spec.paused\n"
        '- .spec.containers[name="c"]\n'
        '- .spec.containers[name="c"].image\n'
        'conflicts with "m" with subresource "scale":\n'
        "- .spec.replicas\n"
        'conflicts with "up" with subresource "status" using apps/v1:\n'
        "- .status.ready"
    )
    assert [each["field"] for each in error.status["details"]["causes"]] == [
        ".spec.paused",
        '.spec.containers[name="c"]',
        '.spec.containers[name="c"].image',
        ".spec.replicas",
        ".status.ready",
    ]
