"""Random objects of the kind `APP`, decoded, of a few names and values so that they meet."""

from typing import Any

from hypothesis import strategies as st

TEXT = st.sampled_from(["", "1", "2"])
MAP = st.dictionaries(st.sampled_from("abc"), TEXT, max_size=3)
PORTS = st.lists(
    st.fixed_dictionaries(
        {"port": st.sampled_from([80, 443])},
        optional={"protocol": st.sampled_from(["TCP", "UDP"]), "name": TEXT},
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda port: (port["port"], port.get("protocol", "TCP")),
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("abc")},
        optional={
            "image": TEXT,
            "ports": PORTS,
            "args": st.lists(TEXT, min_size=1, max_size=2),
            "limits": MAP,
        },
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda container: str(container["name"]),
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 2),
        "paused": st.booleans(),
        "selector": st.fixed_dictionaries({"matchLabels": MAP}),
        "containers": CONTAINERS,
        "strategy": st.fixed_dictionaries({}, optional={"type": TEXT}),
    },
)
FINALIZERS = st.lists(st.sampled_from("abc"), unique=True, min_size=1, max_size=3)


def _app(meta: dict[str, Any], spec: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "App",
        "metadata": {"name": "x", **meta},
        "spec": spec,
        **more,
    }


APPS = st.builds(
    _app,
    st.fixed_dictionaries({}, optional={"labels": MAP, "finalizers": FINALIZERS}),
    SPECS,
    st.fixed_dictionaries({}, optional={"data": MAP}),
)
