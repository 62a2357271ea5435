"""HTTP: requests to calls of verbs, results to answers.

    Request → routing → authentication → limits → authorization → verb → representation → Answer

    limits/    seats and queues, time, bytes that clients have not taken
    watches/   changes as bytes on streams
    pages/     paths that are not resources: discovery, OpenAPI, health, metrics

Paths, media types, headers and pages are handled here; what a request does is up to the verbs. The
socket server is kvstack.component.http.serving.
"""
