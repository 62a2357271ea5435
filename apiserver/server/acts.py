"""What answers the creates that store nothing: reviews and tokens."""

from kvstack.apiserver.objects.groups import GroupResource
from kvstack.apiserver.policy.reviews.reviews import Reviews
from kvstack.apiserver.policy.service_accounts.issuer import TokenIssuer
from kvstack.apiserver.registry.record import Obj
from kvstack.apiserver.schema.resource import Resource
from kvstack.apiserver.verbs.acting import Act, Validate
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.environment import Environment


def add_reviews(env: Environment, rows: list[Resource], reviews: Reviews) -> None:
    """Answer all reviews that are served."""
    for row in rows:
        resource = GroupResource(row.group, row.name)
        if reviews.handles(resource):
            env.acts[row.group, row.name, ""] = _review(reviews, resource)


def add_tokens(env: Environment, issuer: TokenIssuer) -> None:
    """Answer requests for tokens of service accounts."""

    async def act(call: Call, obj: Obj, validate: Validate) -> Obj:
        issued = await issuer.create(call.namespace, call.info.name, obj, validate)
        call.warnings += issued.warnings
        return issued.request

    env.acts["", "serviceaccounts", "token"] = act


def _review(reviews: Reviews, resource: GroupResource) -> Act:
    async def act(call: Call, obj: Obj, validate: Validate) -> Obj:
        return await reviews.create(resource, call.info.namespace, call.user, obj, validate)

    return act
