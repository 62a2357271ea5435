"""Options of streams in the query."""

import pytest

from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.verbs.subresources.stream_options import read


@pytest.mark.parametrize(
    ("kind", "query", "expected"),
    [
        ("PodLogOptions", {}, {}),
        ("PodLogOptions", {"tailLines": ["05"]}, {"tailLines": 5}),
        ("PodLogOptions", {"follow": [""]}, {"follow": True}),
        (
            "PodLogOptions",
            {"follow": ["0"], "previous": ["False"]},
            {"follow": False, "previous": False},
        ),
        (
            "PodLogOptions",
            {"sinceTime": ["2020-01-01T01:00:00+01:00"]},
            {"sinceTime": "2020-01-01T00:00:00Z"},
        ),
        ("PodLogOptions", {"sinceTime": [""]}, {"sinceTime": "0001-01-01T00:00:00Z"}),
        ("PodLogOptions", {"pretty": ["1"], "stdin": ["1"]}, {}),
        (
            "PodExecOptions",
            {"command": ["a", "b c"], "tty": ["1"]},
            {"command": ["a", "b c"], "tty": True},
        ),
        ("PodAttachOptions", {"command": ["a"], "container": ["x", "y"]}, {"container": "x"}),
        ("PodPortForwardOptions", {"ports": ["1,2", "3"]}, {"ports": [1, 2, 3]}),
        ("PodProxyOptions", {"stdin": ["1"]}, {}),
    ],
)
def test_options_are_read(
    kind: str, query: dict[str, list[str]], expected: dict[str, object]
) -> None:
    assert read(kind, query) == expected


@pytest.mark.parametrize(
    ("kind", "query", "message"),
    [
        ("PodLogOptions", {"tailLines": ["x"]}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("PodLogOptions", {"limitBytes": [""]}, 'strconv.ParseInt: parsing "": invalid syntax'),
        (
            "PodLogOptions",
            {"sinceTime": ["bad"]},
            'parsing time "bad" as "2006-01-02T15:04:05Z07:00": cannot parse "bad" as "2006"',
        ),
        (
            "PodPortForwardOptions",
            {"ports": ["x"]},
            'cannot convert to []int32: strconv.ParseUint: parsing "x": invalid syntax',
        ),
    ],
)
def test_what_cannot_be_read_is_refused(
    kind: str, query: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        read(kind, query)
    assert (refused.value.code, refused.value.status["message"]) == (400, message)
