"""Server-side apply and managed fields: who owns which field, and what an apply makes of it.

    create, update, patch ──► update.on_create, update.on_update ──► new metadata.managedFields
    apply patch ────────────► apply.on_apply ──► merged object with its managedFields, or a refusal

An `Endpoint` (endpoint.py) holds what does not change between requests: the type, the version, the
fields that a write there never owns. Below it: sets of fields (path.py, field_set.py), the walks
over a value and its type (ownership.py, comparison.py, merging.py, removal.py, validation.py), and
the entries of managedFields (managed_fields.py). Everything here is pure; the time is an argument.

Before an object is stored, `managed_fields.keep_times` takes back times that are its only change.

Not here: decoding and defaulting what an apply has merged, admission, the conversion between
versions (it is given to the endpoint), the form of entries (objects/metadata.py checks it).
"""
