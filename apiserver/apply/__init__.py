"""Server-side apply and managed fields: ownership of fields, and merging.

    create, update, patch ──► update.on_create, update.on_update ──► new metadata.managedFields
    apply patch ────────────► apply.on_apply ──► merged object with its managedFields, or a refusal

An `Endpoint` (endpoint.py) holds what does not change between requests: the type, the version, the
fields that a write there never owns. Below it: sets of fields (path.py, field_set.py), traversals
of a value and its type (ownership.py, comparison.py, merging.py, removal.py, validation.py), and
the entries of managedFields (managed_fields.py). Everything here is pure; the time is an argument.

Before an object is stored, `managed_fields.keep_times` reverts timestamps that are its only change.

Not here: decoding and defaulting the merged object, admission, conversion between versions (a
parameter of the endpoint), and the form of entries (objects/metadata.py checks it).
"""
