"""What an operator sees of a running member: metrics in Prometheus's format, and slow requests.

driver's thread:  MetricsObserver.on_inbox/on_sent ── counts calls, logs slow ones, runs reads
side loop:        Gatherer.read() ── counters of one moment ──► metrics page, status page
"""
