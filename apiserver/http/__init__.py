"""HTTP: requests to calls of verbs, results to answers.

    Request → routing → authentication → limits → authorization → verb → representation → Answer

Paths, media types, headers and pages live here; what a request does is the verbs'. The server that
owns sockets is kvstore.http.serving.
"""
