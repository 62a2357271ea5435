"""The verbs: the processing of a request from its body to its result, in Kubernetes' order.

    dispatch       which coroutine answers a verb
    reading/       get, list, watch
    writing/       create, update, patch: body → validation → admission → transaction
    deletion/      delete, deletecollection, the end of namespaces
    subresources/  verbs on part of an object
    forms/         media types, versions and conversions of bodies and objects

A verb is a coroutine that gets a `Call` and returns a result (results.py), or raises ApiError. It
only waits for the store. It knows nothing of HTTP: http encodes the result.
"""
