"""The room of ``cuassay fleet``: the tests of one run, spread over the workers of a dask cluster, as one record.

`cutting` makes shards of the tests, and `book` decides which worker runs which of them; both are pure, so that
`simulation` tries them with a thousand workers. `driver` hands the shards out through dask.distributed, `shard` is what
a worker does of one, and `merging` writes the rows. Nothing here imports dask before it is used.
"""
