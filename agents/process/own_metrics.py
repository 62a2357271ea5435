"""The metrics that every agent has: its build, its requests to API servers, its process."""

from kvstack.component.metrics.build_info import build_family
from kvstack.component.metrics.exposition import FamilySamples
from kvstack.component.metrics.process_families import read_process
from kvstack.component.metrics.rest_client import REQUESTS


def own_metrics() -> list[FamilySamples]:
    """Return the samples."""
    return [build_family(), *REQUESTS.samples(), *read_process()]
