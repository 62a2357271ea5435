"""custom.metrics.k8s.io and external.metrics.k8s.io, from Prometheus' text format.

rules          which metrics there are, and of what they are made
scraper        reads pods; page_reader: reads pages that the file of rules names
readings       what both keep: the last two readings of each, sums and rates
api            custom.metrics.k8s.io; external_api: external.metrics.k8s.io; queries: what both read
rounds         one reading after the other
"""
