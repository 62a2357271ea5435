"""The pages by which others verify service account tokens; see `service_accounts.discovery`."""

from kvstack.apiserver.http.negotiation import NotAcceptableError
from kvstack.apiserver.http.pages.page_set import Page, PageSet, check_get
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.policy.service_accounts.discovery import (
    CACHE_CONTROL,
    CONFIGURATION_PATH,
    CONFIGURATION_TYPE,
    KEYS_PATH,
    KEYS_TYPE,
    documents,
)
from kvstack.apiserver.server.security import Security
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.logger import Logger


def add_identity_pages(
    pages: PageSet, options: Options, security: Security, address: str, logger: Logger
) -> None:
    """Serve both pages, if the issuer is a URL."""
    accounts = options.authentication.accounts
    if not accounts.issuers or not security.authenticators.keys:
        return
    try:
        both = documents(
            accounts.issuers[0], security.authenticators.keys, address, accounts.jwks_uri
        )
    except ValueError as error:
        logger.info("OpenID Connect discovery is not served", error=str(error))
        return
    configuration = _page(both.configuration, CONFIGURATION_TYPE)
    pages.add(CONFIGURATION_PATH, configuration, takes_slash=True)
    pages.add(KEYS_PATH, _page(both.keys, KEYS_TYPE), takes_slash=True)


def _page(body: bytes, content_type: str) -> Page:
    async def page(context: RequestContext) -> None:
        request, reply = context.request, context.reply
        check_get(request)
        accept = request.header("accept")
        ranges = {each.partition(";")[0].strip() for each in accept.split(",")}
        if accept and ranges.isdisjoint(("*/*", content_type)):
            raise NotAcceptableError(
                f"406: Not Acceptable\n\nAvailable representations: {content_type}"
            )
        reply.cache_control = CACHE_CONTROL
        reply.send(200, content_type, body)

    return page
