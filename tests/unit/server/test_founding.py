"""Who a member without a log is: ids and refusals as etcd's."""

from collections.abc import Mapping, Sequence

import pytest

from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import LineLogger
from kvstore.peers.http_client import PeerRequestError
from kvstore.peers.questions import RemoteCluster, Versions
from kvstore.server.boot.founding import Founding, Identity, identity
from kvstore.wire.members import Member, member_id

THREE = {
    "n1": ["http://127.0.0.1:23801"],
    "n2": ["http://127.0.0.1:23802"],
    "n3": ["http://127.0.0.1:23803"],
}


class Others:
    """Members that answer what they are told to."""

    def __init__(self, members: Sequence[Member] | None = None, cluster: str = "3.7.0") -> None:
        self.answer = members
        self.clusters: Mapping[str, str] = {}
        self.cluster = cluster
        self.is_downgrading = False
        self.asked: list[str] = []

    def members(self, urls: Sequence[str], timeout_s: float) -> RemoteCluster:
        self.asked += urls
        if self.answer is None:
            raise PeerRequestError(
                f"could not retrieve cluster information from the given URLs ({timeout_s})"
            )
        return RemoteCluster(0xC0FFEE, list(self.answer))

    def version(self, urls: Sequence[str], timeout_s: float) -> Versions:
        cluster = self.clusters.get(urls[0], self.cluster)
        if not cluster:
            raise PeerRequestError(f"down ({timeout_s})")
        return Versions("3.7.1", cluster, "3.7.0")

    def downgrade_enabled(self, urls: Sequence[str], timeout_s: float) -> bool:
        assert urls
        assert timeout_s
        return self.is_downgrading


def running(*extra: Member) -> list[Member]:
    members = [Member(index, name, urls) for index, (name, urls) in enumerate(THREE.items(), 1)]
    return [*members[:-1], Member(77, "", THREE["n3"]), *extra]


def who(
    others: Others, members: Mapping[str, Sequence[str]] = THREE, *, is_new: bool = False
) -> Identity:
    founding = Founding("n3", lambda: members, "tok", is_new, others, str)
    return identity(founding, LineLogger([], "info"))


def test_founders_compute_the_same_ids_each() -> None:
    found = [
        identity(Founding(name, lambda: THREE, "tok", is_new=True), LineLogger([], "info"))
        for name in THREE
    ]
    assert len({each.cluster_id for each in found}) == 1
    assert [each.own_id for each in found] == [
        member_id(urls, "tok", None) for urls in THREE.values()
    ]
    assert all(each.members == found[0].members for each in found)
    ids = [member.id for member in found[0].members]
    assert ids == sorted(ids)
    assert len(ids) == 3


def test_members_with_the_same_urls_have_one_id() -> None:
    two = {"n3": ["http://127.0.0.1:1"], "x": ["http://127.0.0.1:1"]}
    with pytest.raises(ConfigError, match=r"member exists with identical ID &\{ID:"):
        who(Others(), two, is_new=True)


def test_a_founder_that_nobody_answers() -> None:
    others = Others()
    assert who(others, is_new=True).founds
    assert others.asked == ["http://127.0.0.1:23801", "http://127.0.0.1:23802"]


def test_a_founder_that_is_in_the_cluster_but_never_started() -> None:
    own = member_id(THREE["n3"], "tok", None)
    assert who(Others([Member(own, "n3", THREE["n3"])]), is_new=True).own_id == own


def test_a_founder_that_was_started_before() -> None:
    own = member_id(THREE["n3"], "tok", None)
    others = Others([Member(own, "n3", THREE["n3"], ["http://c:1"])])
    with pytest.raises(ConfigError, match=f"member {own:x} has already been bootstrapped"):
        who(others, is_new=True)


def test_a_joiner_takes_ids_from_the_running_members() -> None:
    found = who(Others(running()))
    assert (found.own_id, found.cluster_id, found.founds) == (77, 0xC0FFEE, False)
    assert [member.id for member in found.members] == [1, 2, 77]


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (None, "cannot fetch cluster info from peer urls: could not retrieve cluster information"),
        (
            running()[:2],
            r"error validating peerURLs {ClusterID:c0ffee Members:[&{ID:1 RaftAttributes:{PeerURLs:"
            r"[http://127.0.0.1:23801] IsLearner:false} Attributes:{Name:n1 ClientURLs:[]}} &{ID:2 "
            r"RaftAttributes:{PeerURLs:[http://127.0.0.1:23802] IsLearner:false} Attributes:"
            r"{Name:n2 ClientURLs:[]}}] RemovedMemberIDs:[]}: member count is unequal",
        ),
        (
            [*running()[1:], Member(9, "n9", ["http://127.0.0.1:9"])],
            "PeerURLs: no match found for existing member (9, [http://127.0.0.1:9]), last resolver "
            'error (resolved urls: "http://127.0.0.1:9" != "http://127.0.0.1:2380',
        ),
    ],
)
def test_a_joiner_whose_flags_do_not_fit(members: list[Member] | None, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        who(Others(members))
    assert text in str(caught.value)


def test_too_many_learners_are_there() -> None:
    learners = [
        Member(each.id, each.name, each.peer_urls, is_learner=each.id != 77) for each in running()
    ]
    with pytest.raises(ConfigError, match="membership: too many learner members in cluster"):
        who(Others(learners))


@pytest.mark.parametrize(
    ("clusters", "downgrading", "fits"),
    [
        (["3.7.0", "3.7.0"], False, True),
        (["3.0.0", ""], False, True),
        (["", ""], False, False),
        (["not_decided", "3.5.0"], False, True),
        (["3.8.0", "3.7.0"], False, False),
        (["2.3.0", "3.7.0"], False, False),
        (["3.7.0", "3.7.0"], True, False),
        (["3.8.0", "3.8.0"], True, True),
    ],
)
def test_the_cluster_version_must_fit(
    clusters: list[str], *, downgrading: bool, fits: bool
) -> None:
    others = Others(running())
    others.clusters = dict(zip((THREE["n1"][0], THREE["n2"][0]), clusters, strict=True))
    others.is_downgrading = downgrading
    if fits:
        assert who(others).own_id == 77
    else:
        with pytest.raises(ConfigError, match="incompatible with current running cluster"):
            who(others)
