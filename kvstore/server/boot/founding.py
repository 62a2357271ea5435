"""The identity of a member without a log: a founder of a new cluster, or one that joins.

    new        ids are computed from the flags, and no member may have started already. The flags
               name the members, or a domain with SRV records, or a discovery registry
    existing   the running members are asked for the member list; each member in the flags gets the
               id of the running one with the same peer URLs

Requests go to the others' peer ports, before this member listens on its own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.config.initial_cluster import Resolve, difference, initial_members, read_members
from kvstore.config.model import Config
from kvstore.peers.http_client import PeerRequestError
from kvstore.peers.questions import (
    RemoteCluster,
    Versions,
    fetch_downgrade_enabled,
    fetch_members,
    fetch_version,
)
from kvstore.peers.tls import PeerTls
from kvstore.server.boot.member_address import local_address_of
from kvstore.server.boot.resolution import patient_resolver
from kvstore.server.discovery.join import discoverer
from kvstore.types import CLUSTER_VERSION, MIN_CLUSTER_VERSION
from kvstore.wire.members import Member, cluster_id, member_id
from kvstore.wire.versions import parse_version

BOOTSTRAPPED_TIMEOUT_S: Final = 1.0
MEMBERS_TIMEOUT_S: Final = 10.0


class Questions(Protocol):
    """Requests to other members; each raises PeerRequestError if there is no answer."""

    def members(self, urls: Sequence[str], timeout_s: float) -> RemoteCluster:
        """Return the member list from the first of the URLs that answers."""
        ...

    def version(self, urls: Sequence[str], timeout_s: float) -> Versions:
        """Return the versions of the member with these URLs."""
        ...

    def downgrade_enabled(self, urls: Sequence[str], timeout_s: float) -> bool:
        """Ask the member with these URLs whether a downgrade is in progress."""
        ...


class PeerQuestions:
    """Sends the requests over HTTP to the peer ports."""

    def __init__(self, tls: PeerTls) -> None:
        self._tls = tls

    def members(self, urls: Sequence[str], timeout_s: float) -> RemoteCluster:
        """See Questions."""
        return fetch_members(urls, self._tls, timeout_s)

    def version(self, urls: Sequence[str], timeout_s: float) -> Versions:
        """See Questions."""
        return fetch_version(urls, self._tls, timeout_s)

    def downgrade_enabled(self, urls: Sequence[str], timeout_s: float) -> bool:
        """See Questions."""
        return fetch_downgrade_enabled(urls, self._tls, timeout_s)


class Founding(NamedTuple):
    """The cluster as configured; used only while there is no log."""

    name: str
    members: Callable[[], Mapping[str, Sequence[str]]]  # peer URLs by name; raises ConfigError
    token: str
    is_new: bool  # else: join an existing cluster
    questions: Questions | None = None  # None: there are no others
    resolve: Resolve | None = None  # needed to join
    learners_max: int = 1
    request_timeout_s: float = 7.0
    force_new_cluster: bool = False  # at a restart: be the only member from now on
    # Discovery: (own id, name=url,…) → name=url,… of all members.
    discover: Callable[[int, str], str] | None = None


def founding_of(config: Config, logger: Logger) -> Founding:
    """Return the cluster as configured by the flags."""
    resolve = patient_resolver()
    discover = discoverer(config, logger)
    return Founding(
        config.name,
        lambda: initial_members(config, resolve, lambda: _by_srv(config, logger)),
        config.discovery.token if discover else config.initial_cluster_token,
        config.initial_cluster_state == "new",
        questions=PeerQuestions(peer_tls_of(config)),
        resolve=resolve,
        learners_max=config.max_learners,
        request_timeout_s=config.request_timeout_s,
        force_new_cluster=config.force_new_cluster,
        discover=discover,
    )


def _by_srv(config: Config, logger: Logger) -> str:
    """Return the cluster that SRV records name."""
    # Imported here: the DNS library is a quarter of what a start imports.
    from kvstore.server.discovery.srv import cluster_by_srv

    return cluster_by_srv(config, logger)


def peer_tls_of(config: Config) -> PeerTls:
    """Return the settings of TLS between members, and the address to dial from."""
    tls = config.peer_tls
    return PeerTls(
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        client_cert_file=tls.client_cert_file,
        client_key_file=tls.client_key_file,
        trusted_ca_file=tls.trusted_ca_file,
        client_cert_auth=tls.client_cert_auth,
        crl_file=tls.crl_file,
        allowed_cns=tls.allowed_cns,
        allowed_hostnames=tls.allowed_hostnames,
        skip_client_san_verification=tls.skip_client_san_verification,
        is_self_signed=tls.auto_tls,
        min_version=config.tls_min_version,
        max_version=config.tls_max_version,
        cipher_suites=config.cipher_suites,
        # Where DNS names the members, their certificates may be the domain's.
        server_name="" if tls.trusted_ca_file else config.discovery_srv,
        local_address=local_address_of(config),
    )


class Identity(NamedTuple):
    """The ids of this member, the cluster and the members."""

    own_id: int
    cluster_id: int
    members: Sequence[Member]  # by ascending id
    founds: bool  # else: the cluster exists


def identity(founding: Founding, logger: Logger) -> Identity:
    """Return the identity of this member; ConfigError if the flags are invalid."""
    return _founder(founding) if founding.is_new else _joiner(founding, logger)


def founders(founding: Founding) -> Identity:
    """Return the configured members, with the ids they have if they found the cluster."""
    named = founding.members()
    if founding.discover is None:
        return _with_ids(founding, named)
    own_id = _with_ids(founding, named).own_id
    contents = ",".join(f"{name}={url}" for name, urls in named.items() for url in urls)
    cluster = founding.discover(own_id, contents)
    met = read_members(cluster)
    urls = [url for each in met.values() for url in each]
    if len(set(urls)) != len(urls):
        raise ConfigError(f"discovery cluster {cluster} has duplicate url")
    return _with_ids(founding, met)._replace(own_id=own_id)


def _with_ids(founding: Founding, named: Mapping[str, Sequence[str]]) -> Identity:
    members: dict[int, Member] = {}
    for name, urls in named.items():
        member = Member(member_id(urls, founding.token, None), name, sorted(urls))
        if member.id in members:
            raise ConfigError(f"member exists with identical ID {format_member(member)}")
        if member.id == 0:
            raise ConfigError("cannot use 0 as member id")
        members[member.id] = member
    ids = sorted(members)
    own = [member.id for member in members.values() if member.name == founding.name]
    if not own:
        raise ConfigError(f"--initial-cluster does not name this member, {founding.name!r}")
    return Identity(own[0], cluster_id(ids), [members[each] for each in ids], founds=True)


def format_member(member: Member) -> str:
    """Return a member as etcd formats it in error texts."""
    return (
        f"&{{ID:{member.id:x} RaftAttributes:{{PeerURLs:{_shown_list(member.peer_urls)} "
        f"IsLearner:{str(member.is_learner).lower()}}} "
        f"Attributes:{{Name:{member.name} ClientURLs:{_shown_list(member.client_urls)}}}}}"
    )


def _founder(founding: Founding) -> Identity:
    founder = founders(founding)
    others = _other_urls(founding, founder.members)
    if founding.questions is None or founding.discover is not None or not others:
        return founder  # members found by discovery cannot have started yet
    try:
        running = founding.questions.members(others, BOOTSTRAPPED_TIMEOUT_S)
    except PeerRequestError:
        return founder  # none is running, as expected
    known = {member.id: member for member in running.members}.get(founder.own_id)
    if known is not None and known.client_urls:
        raise ConfigError(f"member {founder.own_id:x} has already been bootstrapped")
    return founder


def _joiner(founding: Founding, logger: Logger) -> Identity:
    local = founders(founding).members
    questions, resolve = founding.questions, founding.resolve
    if questions is None or resolve is None:
        raise ConfigError("--initial-cluster-state=existing: there is no way to ask the members")
    try:
        running = questions.members(_other_urls(founding, local), MEMBERS_TIMEOUT_S)
    except PeerRequestError as error:
        raise ConfigError(f"cannot fetch cluster info from peer urls: {error}") from None
    try:
        _take_ids(local, running.members, resolve)
    except ConfigError as error:
        raise ConfigError(f"error validating peerURLs {_shown_cluster(running)}: {error}") from None
    own_id = next(member.id for member in local if member.name == founding.name)
    if not _is_compatible(questions, local, own_id, founding.request_timeout_s, logger):
        raise ConfigError("incompatible with current running cluster")
    if sum(member.is_learner for member in running.members) > founding.learners_max:
        raise ConfigError("membership: too many learner members in cluster")
    members = sorted(running.members, key=lambda member: member.id)
    return Identity(own_id, running.cluster_id, members, founds=False)


def _other_urls(founding: Founding, members: Sequence[Member]) -> list[str]:
    return sorted(
        url for member in members if member.name != founding.name for url in member.peer_urls
    )


def _take_ids(local: Sequence[Member], running: Sequence[Member], resolve: Resolve) -> None:
    """Give each local member the id of the running one with the same peer URLs."""
    if len(local) != len(running):
        raise ConfigError("member count is unequal")
    for member in sorted(running, key=lambda each: each.id):
        reason = ""
        for ours in local:
            reason = difference(member.peer_urls, ours.peer_urls, resolve)
            if not reason:
                ours.id = member.id
                break
        else:
            raise ConfigError(
                f"PeerURLs: no match found for existing member ({member.id:x}, "
                f"{_shown_list(member.peer_urls)}), last resolver error ({reason})"
            )


def _is_compatible(
    questions: Questions, members: Sequence[Member], own_id: int, timeout_s: float, logger: Logger
) -> bool:
    """Return whether the cluster version of the others is supported.

    At least one must answer, and none with an unsupported version; those that are down are ignored.
    """
    others = sorted((each for each in members if each.id != own_id), key=lambda each: each.id)
    least, most = parse_version(MIN_CLUSTER_VERSION), parse_version(CLUSTER_VERSION)
    if _is_downgrading(questions, others, timeout_s, logger):
        least = most = most.next_minor()
    is_known = False
    for member in others:
        try:
            text = questions.version(member.peer_urls, timeout_s).cluster
            version = parse_version(text)
        except (PeerRequestError, ValueError) as error:
            _warn(logger, "failed to get version", member, error)
            continue
        if not least <= version <= most:
            logger.warning(
                "cluster version of remote member is not compatible",
                remote_member_id=f"{member.id:x}",
                remote_member_cluster_version=text,
                minimum_cluster_version_supported=str(least),
                maximum_cluster_version_supported=str(most),
            )
            return False
        is_known = True
    return is_known


def _is_downgrading(
    questions: Questions, others: Sequence[Member], timeout_s: float, logger: Logger
) -> bool:
    for member in others:
        try:
            return questions.downgrade_enabled(member.peer_urls, timeout_s)
        except PeerRequestError as error:
            _warn(logger, "failed to get downgrade enabled status", member, error)
    return False


def _warn(logger: Logger, msg: str, member: Member, error: Exception) -> None:
    logger.warning(msg, remote_member_id=f"{member.id:x}", error=str(error))


def _shown_list(texts: Sequence[str]) -> str:
    return f"[{' '.join(texts)}]"


def _shown_cluster(cluster: RemoteCluster) -> str:
    members = " ".join(format_member(each) for each in cluster.members)
    return f"{{ClusterID:{cluster.cluster_id:x} Members:[{members}] RemovedMemberIDs:[]}}"
