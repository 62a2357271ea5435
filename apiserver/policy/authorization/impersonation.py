"""Impersonation.

    Impersonate-User: jane    Impersonate-Group: devs    Impersonate-Extra-Scopes: view

There are several modes, each with verbs of its own. A constrained mode needs the verb
`impersonate-on:<mode>:<verb>` on what is requested, and `impersonate:<mode>` on each part of the
requested identity; the oldest mode needs only `impersonate` on each part. The first mode that
allows it counts; the one that last succeeded for a user is tried first, and its refusal is reported
if none allows it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from kvstack.apimachinery.attributes import (
    ANONYMOUS,
    AUTHENTICATED,
    NODE_PREFIX,
    NODES,
    PRIVILEGED,
    UNAUTHENTICATED,
    Attributes,
    User,
    parse_service_account,
    service_account_groups,
)
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.field_checks import domain_prefixed_path
from kvstack.apimachinery.objects.field_errors import summary
from kvstack.apimachinery.objects.names import check_dns_subdomain
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import NODE_NAME_EXTRA
from kvstack.apiserver.policy.authentication.front_proxy import extra_key
from kvstack.apiserver.policy.authorization.chain import decided
from kvstack.apiserver.policy.authorization.refusal import refusal
from kvstack.apiserver.policy.interfaces import Authorizer

HEADER_PREFIX: Final = "impersonate-"
"""Prefix of the headers, in lower case; later stages must not see them."""

_USER: Final = "impersonate-user"
_UID: Final = "impersonate-uid"
_GROUP: Final = "impersonate-group"
_EXTRA: Final = "impersonate-extra-"
_AUTHENTICATION: Final = "authentication.k8s.io"
_ASSOCIATED_KEYS: Final = "authentication.kubernetes.io/associated-node-keys"
_MANY: Final = 4
_REMEMBERED_MAX: Final = 10_000

Applies: TypeAlias = Callable[[User, User], bool]
"""(user, requester): returns whether a mode applies."""


class Impersonated(NamedTuple):
    """The impersonated user."""

    user: User
    constraint: str
    """The verb that allowed it, for the audit; empty: the oldest mode."""


class _Mode(NamedTuple):
    name: str
    applies: Applies

    @property
    def is_constrained(self) -> bool:
        return self.name != "legacy"

    @property
    def verb(self) -> str:
        return f"impersonate:{self.name}" if self.is_constrained else "impersonate"


def requested_user(headers: Iterable[tuple[str, str]]) -> User | None:
    """Return the identity that headers request, unverified; None: none.

    Header names are in lower case. Raises ApiError 400 if there is no user name.
    """
    name = uid = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    seen: set[str] = set()
    for header, value in headers:
        if not header.startswith(HEADER_PREFIX):
            continue
        if header == _GROUP:
            groups.append(value)
        elif header.startswith(_EXTRA):
            extra.setdefault(extra_key(header[len(_EXTRA) :]), []).append(value)
        elif header == _USER and header not in seen:
            name = value
        elif header == _UID and header not in seen:
            uid = value
        # Of several headers of one name the first counts.
        seen.add(header)
    if name:
        return User(name, uid, tuple(groups), {key: tuple(each) for key, each in extra.items()})
    if uid or groups or extra:
        raise status.bad_request(
            f"requested {_go_syntax(uid, groups, extra)} without impersonating a user name"
        )
    return None


class Impersonation:
    """Decides whether requesters may impersonate users."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer: Final = authorizer
        self._last: dict[str, _Mode] = {}

    async def impersonate(self, user: User, attributes: Attributes) -> Impersonated:
        """Return the impersonated user; raises ApiError 403."""
        requester = attributes.user
        last = self._last.get(requester.name)
        order = _MODES if last is None else (last, *(each for each in _MODES if each != last))
        refused: status.ApiError | None = None
        for mode in order:
            if not mode.applies(user, requester):
                continue
            try:
                found = await self._try(mode, user, attributes)
            except status.ApiError as error:
                refused = refused or error
                continue
            self._remember(requester.name, mode)
            return found
        raise refused or status.unknown("all impersonation modes failed")

    async def _try(self, mode: _Mode, user: User, attributes: Attributes) -> Impersonated:
        if mode is _ASSOCIATED_NODE:
            attributes = attributes._replace(user=_without_extra(attributes.user))
        if mode.is_constrained:
            verb = f"impersonate-on:{mode.name}:{attributes.verb}"
            await self._check(attributes._replace(verb=verb))
        check_attributes = Attributes(
            attributes.user, mode.verb, version="v1", group=_AUTHENTICATION
        )
        named = check_attributes if mode.is_constrained else check_attributes._replace(group="")
        await self._check(_name_attributes(named, mode, user.name))
        if user.uid:
            await self._check(check_attributes._replace(resource="uids", name=user.uid))
        await self._check_groups(named._replace(resource="groups"), mode, user.groups)
        await self._check_extra(check_attributes._replace(resource="userextras"), mode, user.extra)
        return Impersonated(_completed(user, mode), mode.verb if mode.is_constrained else "")

    async def _check_groups(
        self, attributes: Attributes, mode: _Mode, groups: Sequence[str]
    ) -> None:
        if mode.is_constrained:
            if "" in groups:
                raise refusal(attributes, "impersonating the empty string group is not allowed")
            if PRIVILEGED in groups:
                message = "impersonating the system:masters group is not allowed"
                raise refusal(attributes._replace(name=PRIVILEGED), message)
            if len(groups) >= _MANY and await self._allows(attributes._replace(name="*")):
                return
        for group in groups:
            await self._check(attributes._replace(name=group))

    async def _check_extra(
        self, attributes: Attributes, mode: _Mode, extra: Mapping[str, Sequence[str]]
    ) -> None:
        if mode.is_constrained:
            if message := _wrong_extra(extra):
                raise refusal(attributes, message)
            is_large = sum(map(len, extra.values())) >= _MANY
            if is_large and await self._allows(attributes._replace(subresource="*", name="*")):
                return
        for key, values in extra.items():
            for value in values:
                await self._check(attributes._replace(subresource=key, name=value))

    async def _allows(self, attributes: Attributes) -> bool:
        return (await decided(self._authorizer, attributes)).allowed

    async def _check(self, attributes: Attributes) -> None:
        decision = await decided(self._authorizer, attributes)
        if not decision.allowed:
            reasons = (each for each in (decision.error, decision.reason) if each)
            raise refusal(attributes, ": ".join(reasons))

    def _remember(self, name: str, mode: _Mode) -> None:
        if len(self._last) >= _REMEMBERED_MAX:
            self._last.clear()
        self._last[name] = mode


def _is_only_name(user: User) -> bool:
    return not (user.uid or user.groups or user.extra)


def _node_name(user_name: str) -> str:
    """Return the node of a node user; empty: it is another user."""
    if not user_name.startswith(NODE_PREFIX):
        return ""
    name = user_name[len(NODE_PREFIX) :]
    return "" if check_dns_subdomain(name) else name


def _is_own_node(user: User, requester: User) -> bool:
    node = _node_name(user.name)
    return (
        bool(node)
        and _is_only_name(user)
        and parse_service_account(requester.name) is not None
        and requester.extra.get(NODE_NAME_EXTRA) == (node,)
    )


def _is_node(user: User, _requester: User) -> bool:
    return _is_only_name(user) and bool(_node_name(user.name))


def _is_service_account(user: User, _requester: User) -> bool:
    return _is_only_name(user) and parse_service_account(user.name) is not None


def _is_other(user: User, _requester: User) -> bool:
    return not _node_name(user.name) and parse_service_account(user.name) is None


def _is_any(_user: User, _requester: User) -> bool:
    return True


_ASSOCIATED_NODE: Final = _Mode("associated-node", _is_own_node)
_MODES: Final = (
    _ASSOCIATED_NODE,
    _Mode("arbitrary-node", _is_node),
    _Mode("serviceaccount", _is_service_account),
    _Mode("user-info", _is_other),
    _Mode("legacy", _is_any),
)


def _without_extra(requester: User) -> User:
    # The node is known to be the requester's own; rules must not depend on which it is.
    return requester._replace(extra={_ASSOCIATED_KEYS: tuple(sorted(requester.extra))})


def _name_attributes(attributes: Attributes, mode: _Mode, name: str) -> Attributes:
    account = parse_service_account(name)
    if account is not None:
        namespace, account_name = account
        return attributes._replace(
            resource="serviceaccounts", namespace=namespace, name=account_name
        )
    node = _node_name(name)
    if mode.is_constrained and node:
        return attributes._replace(resource="nodes", name="*" if mode is _ASSOCIATED_NODE else node)
    return attributes._replace(resource="users", name=name)


def _completed(user: User, mode: _Mode) -> User:
    groups = user.groups
    account = parse_service_account(user.name)
    if account is not None and not groups:
        groups = service_account_groups(account[0])
    elif mode.is_constrained and _node_name(user.name):
        groups = (NODES,)
    if user.name == ANONYMOUS:
        added = UNAUTHENTICATED
    elif UNAUTHENTICATED not in groups:
        added = AUTHENTICATED
    else:
        return user._replace(groups=groups)
    return user._replace(groups=groups if added in groups else (*groups, added))


def _wrong_extra(extra: Mapping[str, Sequence[str]]) -> str:
    for key, values in extra.items():
        if not key:
            return "impersonating the empty string key in extra is not allowed"
        if errors := domain_prefixed_path("extra.key", key):
            return f"impersonating an invalid key in extra is not allowed: {summary(errors)}"
        if key != key.lower():
            return f"impersonating a non-lowercase key in extra is not allowed: {quote(key)}"
        if "" in values:
            return "impersonating the empty string value in extra is not allowed"
    return ""


def _go_syntax(uid: str, groups: Sequence[str], extra: Mapping[str, Sequence[str]]) -> str:
    members = ", ".join(f"{quote(key)}:{_go_list(extra[key])}" for key in sorted(extra))
    shown = f"map[string][]string{{{members}}}" if extra else "map[string][]string(nil)"
    return (
        f'&user.DefaultInfo{{Name:"", UID:{quote(uid)}, Groups:{_go_list(groups)}, Extra:{shown}}}'
    )


def _go_list(texts: Sequence[str]) -> str:
    if not texts:
        return "[]string(nil)"
    return f"[]string{{{', '.join(map(quote, texts))}}}"
