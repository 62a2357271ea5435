"""What an operator sees of a running member: metrics in Prometheus's format, and slow requests.

driver's thread:  MetricsObserver.fill/drain ── counts calls, notices what is slow, takes Views
side loop:        Gatherer.view() ── one View as of one moment ──► page, status page
"""
