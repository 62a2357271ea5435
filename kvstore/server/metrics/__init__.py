"""What an operator sees of a running member: metrics in Prometheus's format, and slow requests.

driver's thread:  Observer.fill/drain ── counts calls, notices what is slow, takes Pictures
side loop:        Gathering.picture() ── one Picture as of one moment ──► page, status page
"""
