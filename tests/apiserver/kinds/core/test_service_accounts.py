"""ServiceAccounts keep names of Secrets only."""

from kvstack.apiserver.kinds.core.service_accounts import SERVICE_ACCOUNTS
from tests.apiserver.kinds.hooks import changed, prepared_object, warnings_of, warnings_of_change

WARNING = (
    "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer"
    " separate namespaces to isolate access to mounted secrets"
)


def test_only_names_of_secrets_are_kept() -> None:
    """On creation and on change."""
    given = {"metadata": {"name": "a"}, "secrets": [{"name": "s", "uid": "u"}, {"kind": "Secret"}]}
    assert prepared_object(SERVICE_ACCOUNTS, given)["secrets"] == [{"name": "s"}, {}]
    assert changed(SERVICE_ACCOUNTS, given, given)["secrets"] == [{"name": "s"}, {}]


def test_deprecated_annotation() -> None:
    """It is told when it is new."""
    plain = {"metadata": {"name": "a"}}
    enforced = {
        "metadata": {"name": "a", "annotations": {"kubernetes.io/enforce-mountable-secrets": ""}}
    }
    assert warnings_of(SERVICE_ACCOUNTS, enforced) == [WARNING]
    assert warnings_of(SERVICE_ACCOUNTS, plain) == []
    assert warnings_of_change(SERVICE_ACCOUNTS, enforced, plain) == [WARNING]
    assert warnings_of_change(SERVICE_ACCOUNTS, enforced, enforced) == []
