"""Tools for testing a store, an adapter or an agent; Killick is tested with the same ones.

`conformance` is the suite that every store passes on both faces, `strategies` generates journals,
`players` plays them, and `faults` breaks a database at the k-th step or ends a store as kill -9
would. `killick.stores.memory` is a store without a disk, and the reference for property tests.
"""
