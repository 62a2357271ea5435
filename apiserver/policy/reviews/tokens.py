"""TokenReview.

spec: {token, audiences} → status: {authenticated, user, audiences} or {error}
"""

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.authentication.results import AuthenticationError, Identified
from kvstack.apiserver.policy.authentication.token_chain import TokenChain


def check_token_review(review: Object) -> None:
    """Refuse a review without a token; raises ApiError."""
    if not (review.get("spec") or {}).get("token"):
        raise status.bad_request("token is required for TokenReview in authentication")


async def token_status(
    tokens: TokenChain, review: Object, api_audiences: tuple[str, ...]
) -> Object:
    """Return the status of a validated review."""
    spec = review["spec"]
    audiences = tuple(spec.get("audiences") or api_audiences)
    # As in a header, a blank ends the token.
    token = spec["token"].split(" ", 1)[0]
    try:
        found = tokens.authenticate(token, audiences)
        identified = found if isinstance(found, Identified) else await found
    except AuthenticationError as error:
        return {"user": {}, "error": str(error)}
    answer: Object = {"authenticated": True, "user": identified.user.to_object()}
    if identified.audiences:
        answer["audiences"] = list(identified.audiences)
    return answer
