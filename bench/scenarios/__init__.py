"""One module a workload; `bench.catalogue` lists them."""
