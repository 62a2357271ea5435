"""Common parts of the kinds that own pods.

    {"spec": {"selector": …, "template": …}, "status": …}

Their template must have labels that the selector matches, and the restart policy Always. Writes of
the object keep the status and increment the generation when the spec changes; writes of the status
keep the spec.
"""

from collections.abc import Callable
from typing import Final

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.field_errors import (
    child,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector
from kvstack.apimachinery.objects.names import IMMUTABLE
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.pods.disabled_fields import drop_disabled_template_fields
from kvstack.apiserver.kinds.pods.warnings import template_warnings
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.strategy import Context

TEMPLATE_PATH: Final = "spec.template"
SELECTOR_TYPE: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"


def template_of(obj: Object) -> Object:
    """Return the template of the object's pods."""
    template: Object = (obj.get("spec") or {}).get("template") or {}
    return template


def check_selector(errors: Errors, selector: Object | None, path: str, what: str) -> None:
    """Check a selector, which must not be empty; `what`: the kind in errors."""
    if selector is None:
        errors.append(required(path))
        return
    errors += labels.validate_object(path, selector)
    if not (selector.get("matchLabels") or selector.get("matchExpressions")):
        shown = selector_shown(selector)
        errors.append(invalid(path, shown, f"empty selector is invalid for {what}"))


def selector_of(selector: Object | None) -> Selector | None:
    """Return the parsed selector; None: it has errors."""
    try:
        return labels.from_object(selector)
    except labels.SelectorError:
        return None


def selector_shown(selector: Object | None) -> Object | None:
    """Return a selector as errors print it."""
    if selector is None:
        return None
    shown = {name: each for name, each in selector.items() if each or each not in ([], {})}
    if "matchLabels" in shown:
        shown["matchLabels"] = dict(sorted(shown["matchLabels"].items()))
    return shown


def check_labels(errors: Errors, selector: Selector, template: Object, path: str) -> None:
    """Check that the selector matches the template's labels."""
    own: dict[str, str] | None = (template.get("metadata") or {}).get("labels")
    if not selector.matches(own or {}):
        shown = None if own is None else dict(sorted(own.items()))
        message = "`selector` does not match template `labels`"
        errors.append(invalid(child(path, "metadata", "labels"), shown, message))


def check_runs_forever(errors: Errors, template: Object, path: str, kind: str) -> None:
    """Check that the template has the restart policy Always."""
    spec = template.get("spec") or {}
    spec_path = child(path, "spec")
    policy = spec.get("restartPolicy", "")
    if policy != "Always":
        policy_path = child(spec_path, "restartPolicy")
        errors.append(not_supported(policy_path, JsonText(policy), ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        message = f"activeDeadlineSeconds in {kind} is not Supported"
        errors.append(forbidden(child(spec_path, "activeDeadlineSeconds"), message))


def check_same_selector(errors: Errors, new: Object, old: Object) -> None:
    """Check that the selector is unchanged."""
    selector, before = new["spec"].get("selector"), old["spec"].get("selector")
    if not same(selector, before, SELECTOR_TYPE):
        errors.append(invalid("spec.selector", selector_shown(selector), IMMUTABLE))


def prepare_create(obj: Object, _context: Context) -> None:
    """Clear a new object's status, and drop fields of disabled features."""
    obj["status"] = {}
    obj["metadata"]["generation"] = 1
    drop_disabled_template_fields(obj["spec"].get("template"), None)


def prepare_update_of(spec_type: str) -> Callable[[Object, Object, Context], None]:
    """Return the update hook that increments the generation when the spec changes."""

    def prepare_update(new: Object, old: Object, _context: Context) -> None:
        keep_status(new, old)
        drop_disabled_template_fields(new["spec"].get("template"), old["spec"].get("template"))
        if not same(new["spec"], old["spec"], spec_type):
            raise_generation(new, old)

    return prepare_update


def prepare_status(new: Object, old: Object, _context: Context) -> None:
    """Keep the spec when the status is written."""
    new["spec"] = old["spec"]


def keep_status(new: Object, old: Object) -> None:
    """Keep the status when the object is written."""
    new["status"] = old.get("status") or {}


def raise_generation(new: Object, old: Object) -> None:
    """Increment the generation."""
    new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def changed_template_warnings(new: Object, old: Object, _context: Context) -> list[str]:
    """Return the warnings about the template of an object whose generation was incremented."""
    if new["metadata"].get("generation") == old["metadata"].get("generation"):
        return []
    return template_warnings(template_of(new), TEMPLATE_PATH)
