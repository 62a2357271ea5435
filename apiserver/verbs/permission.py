"""Secondary authorization checks of a request's user on the object of the path."""

from kvstack.apiserver.policy.interfaces import Decision
from kvstack.apiserver.policy.permission import attributes_of, denied
from kvstack.apiserver.verbs.call import Call


async def check_may(call: Call, verb: str) -> None:
    """Check that the user may use another verb; raises ApiError."""
    info, user = call.info, call.user
    answer = call.env.authorizer.authorize(attributes_of(info, user, verb))
    decision = answer if isinstance(answer, Decision) else await answer
    if not decision.allowed:
        raise denied(info, user, decision, verb)
