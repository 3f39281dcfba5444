"""A store in etcd, shared by any number of controllers.

- `store`: the store, and its reads and writes.
- `layout`: the keys, and the format of their values.
- `mirror`: the copy of all keys in memory.
- `watch`: keeps the copy up to date.
- `operations`: the comparisons and operations of a write.
- `commit`: makes the transaction of a write, and finds out whether it was made.
- `generations`: writes that are too large for one transaction.
- `group_commit`: many transactions as one.
- `leases`: the controllers' leases, and the keys of their switches.
- `renewal`: the lease of this controller, renewed in a thread (`loop_thread`, `thread_channel`).
- `assignment`: the choice of a controller for each switch.
- `client`: calls to etcd.
"""
