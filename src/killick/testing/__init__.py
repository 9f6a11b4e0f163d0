"""What others need to test a store, an adapter or an agent with the tools we use ourselves.

`memory` is a store without a disk and the reference for property tests, `conformance` is the suite
that every store passes on both faces, `strategies` generates journals, `failpoints` breaks a
database at the k-th step, and `crash` ends a store as kill -9 would.
"""
