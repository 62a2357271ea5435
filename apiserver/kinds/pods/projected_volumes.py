"""Validation of projected volumes: files from several sources in one directory.

    {"sources": [{"secret": …}, {"serviceAccountToken": …}, {"podCertificate": …}]}

No two files may have the same path; that error is reported at the volume, with the available names.
"""

from collections.abc import Callable
from typing import Final

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.field_errors import (
    child,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
    too_long,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_label_key, length
from kvstack.apiserver.kinds.file_paths import check_local
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.pods.volume_files import (
    check_downward_file,
    check_key_to_path,
    default_mode_and_user,
)
from kvstack.apiserver.kinds.rules import (
    Errors,
    add_invalid,
    needs,
    numeric_id,
)
from kvstack.apiserver.kinds.signer_names import (
    check_signer_name,
    check_trust_bundle_name,
    is_kubernetes_signer,
    signer_of_trust_bundle,
)

TOKEN_SECONDS_MIN: Final = 600
TOKEN_SECONDS_MAX: Final = 1 << 32
CERTIFICATE_SECONDS_MIN: Final = 3600
CERTIFICATE_SECONDS_MAX: Final = 91 * 24 * 3600
KUBERNETES_CERTIFICATE_SECONDS_MAX: Final = 24 * 3600
KEY_TYPES: Final = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
ANNOTATIONS_BYTES_MAX: Final = 256 * 1024

_SAME_PATH: Final = "conflicting duplicate paths"


def check_projected(scope: SpecScope, volume: Object, path: str, errors: Errors) -> None:
    """Check a projected volume."""
    default_mode_and_user(volume, path, errors)
    files = _Files(path, errors)
    sources_path = child(path, "sources")
    for position, source in enumerate(volume.get("sources") or ()):
        source_path = index(sources_path, position)
        given = [each for each in source if source[each] is not None and each in _CHECKS]
        for name in given if len(given) < 2 else [each for each in _CHECKS if each in given]:
            _CHECKS[name](source[name], child(source_path, name), errors, files, scope)
        if len(given) > 1:
            message = "may not specify more than 1 volume type per source"
            errors.append(forbidden(source_path, message))


def check_user_annotations(annotations: Object, path: str, errors: Errors) -> None:
    """Check annotations of a certificate request for its signer."""
    for name in annotations:
        lower_name = name.lower()
        if not lower_name:
            errors.append(required(path))
            continue
        wrong = check_label_key(lower_name)
        add_invalid(errors, path, lower_name, wrong)
        if not wrong and lower_name.count("/") != 1:
            message = 'must be a domain-prefixed key (such as "acme.io/foo")'
            errors.append(invalid(path, lower_name, message))
    size = sum(length(name) + length(value) for name, value in annotations.items())
    if size > ANNOTATIONS_BYTES_MAX:
        errors.append(too_long(path, ANNOTATIONS_BYTES_MAX))


class _Files:
    """The file paths of one volume."""

    __slots__ = ("_errors", "_path", "_paths")

    def __init__(self, path: str, errors: Errors) -> None:
        self._path = path
        self._errors = errors
        self._paths: set[str] = set()

    @property
    def path(self) -> str:
        """Return the path of the volume."""
        return self._path

    def add(self, path: str, description: str) -> None:
        """Add a file; description: printed if its path is taken."""
        if path in self._paths:
            self._errors.append(invalid(self._path, description, _SAME_PATH))
        self._paths.add(path)


def _check_keys(
    source: Object, path: str, errors: Errors, files: _Files, _scope: SpecScope
) -> None:
    name = source.get("name", "")
    _named(source, path, errors)
    for position, item in enumerate(source.get("items") or ()):
        check_key_to_path(item, index(child(path, "items"), position), errors)
        if item.get("path"):
            files.add(item["path"], name)


def _check_downward(
    source: Object, path: str, errors: Errors, files: _Files, _scope: SpecScope
) -> None:
    for item in source.get("items") or ():
        check_downward_file(item, path, errors)
        if item.get("path"):
            files.add(item["path"], item["path"])


def _check_token(
    source: Object, path: str, errors: Errors, files: _Files, scope: SpecScope
) -> None:
    seconds = source.get("expirationSeconds")
    if seconds is None:
        errors.append(required(child(path, "expirationSeconds")))
    elif seconds < TOKEN_SECONDS_MIN:
        message = "may not specify a duration less than 10 minutes"
        errors.append(invalid(child(path, "expirationSeconds"), seconds, message))
    elif seconds > TOKEN_SECONDS_MAX:
        message = "may not specify a duration larger than 2^32 seconds"
        errors.append(invalid(child(path, "expirationSeconds"), seconds, message))
    token_path = source.get("path", "")
    # Upstream reports the path of the token as one of the volume.
    if not token_path:
        errors.append(required(child(files.path, "path")))
    elif not scope.tolerances.remote_token_path:
        check_local(errors, child(files.path, "path"), token_path)
    _user(source, path, errors)


def _check_trust_bundle(
    source: Object, path: str, errors: Errors, files: _Files, _scope: SpecScope
) -> None:
    name, signer = source.get("name"), source.get("signerName")
    if name is not None and signer is not None:
        shown = internal_value(source, "io.k8s.api.core.v1.ClusterTrustBundleProjection")
        errors.append(invalid(path, shown, "only one of name and signerName may be used"))
    elif name is not None:
        _check_bundle_by_name(source, name, path, errors)
    elif signer is not None:
        if not signer:
            errors.append(required(child(path, "signerName"), "must be a valid signer name"))
        check_signer_name(errors, child(path, "signerName"), signer)
        selector_path = child(path, "labelSelector")
        errors.extend(labels.validate_object(selector_path, source.get("labelSelector")))
    else:
        errors.append(required(path, "either name or signerName must be specified"))
    file_path = source.get("path", "")
    needs("path")(source, path, errors)
    _user(source, path, errors)
    check_local(errors, child(path, "path"), file_path)
    files.add(file_path, file_path)


def _check_bundle_by_name(source: Object, name: str, path: str, errors: Errors) -> None:
    name_path = child(path, "name")
    if not name:
        errors.append(required(name_path, "must be a valid object name"))
    add_invalid(
        errors,
        name_path,
        name,
        (
            f"not a valid clustertrustbundlename: {each}"
            for each in check_trust_bundle_name(name, signer_of_trust_bundle(name))
        ),
    )
    selector = source.get("labelSelector")
    if selector is not None:
        message = "labelSelector must be unset if name is specified"
        errors.append(invalid(child(path, "labelSelector"), selector, message))


def _check_certificate(
    source: Object, path: str, errors: Errors, files: _Files, _scope: SpecScope
) -> None:
    signer = source.get("signerName", "")
    check_signer_name(errors, child(path, "signerName"), signer)
    annotations = source.get("userAnnotations")
    if annotations is not None:
        check_user_annotations(annotations, child(path, "userAnnotations"), errors)
    _user(source, path, errors)
    if source.get("keyType") not in KEY_TYPES:
        error = not_supported(child(path, "keyType"), source.get("keyType", ""), KEY_TYPES)
        errors.append(error)
    _check_certificate_age(source.get("maxExpirationSeconds"), signer, path, errors)
    names = ("credentialBundlePath", "keyPath", "certificateChainPath")
    for name in names:
        file_path = source.get(name)
        if file_path:
            check_local(errors, child(path, name), file_path)
            files.add(file_path, file_path)
    if not any(source.get(name) for name in names):
        message = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        errors.append(required(path, message))


def _check_certificate_age(seconds: int | None, signer: str, path: str, errors: Errors) -> None:
    if seconds is None:
        return
    seconds_path = child(path, "maxExpirationSeconds")
    if seconds < CERTIFICATE_SECONDS_MIN:
        message = f"if provided, maxExpirationSeconds must be >= {CERTIFICATE_SECONDS_MIN}"
        errors.append(invalid(seconds_path, seconds, message))
    is_kubernetes = is_kubernetes_signer(signer)
    most = KUBERNETES_CERTIFICATE_SECONDS_MAX if is_kubernetes else CERTIFICATE_SECONDS_MAX
    if seconds > most:
        message = f"if provided, maxExpirationSeconds must be <= {most}"
        errors.append(invalid(seconds_path, seconds, message))


_named: Final = needs("name")
_user: Final = numeric_id("user")
_CHECKS: Final[dict[str, Callable[[Object, str, Errors, _Files, SpecScope], None]]] = {
    "secret": _check_keys,
    "configMap": _check_keys,
    "downwardAPI": _check_downward,
    "serviceAccountToken": _check_token,
    "clusterTrustBundle": _check_trust_bundle,
    "podCertificate": _check_certificate,
}
"""The sources of a projected volume, in order of evaluation."""
