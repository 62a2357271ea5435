"""Handlers of creates that store nothing: reviews and token requests."""

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apiserver.policy.reviews.reviews import Reviews
from kvstack.apiserver.policy.service_accounts.issuer import TokenIssuer
from kvstack.apiserver.verbs.environment import Environment
from kvstack.apiserver.verbs.interfaces import ReviewHandler, ReviewRequest


def add_reviews(env: Environment, rows: list[Resource], reviews: Reviews) -> None:
    """Add the handlers of all reviews that are served."""
    for row in rows:
        resource = GroupResource(row.group, row.name)
        if reviews.handles(resource):
            env.reviews[row.group, row.name, ""] = _review(reviews, resource)


def add_tokens(env: Environment, issuer: TokenIssuer) -> None:
    """Add the handler of service account token requests."""

    async def handler(asked: ReviewRequest) -> Object:
        issued = await issuer.create(asked.namespace, asked.name, asked.obj, asked.validate)
        asked.warnings.extend(issued.warnings)
        return issued.request

    env.reviews["", "serviceaccounts", "token"] = handler


def _review(reviews: Reviews, resource: GroupResource) -> ReviewHandler:
    async def handler(asked: ReviewRequest) -> Object:
        return await reviews.create(
            resource, asked.namespace, asked.user, asked.obj, asked.validate
        )

    return handler
