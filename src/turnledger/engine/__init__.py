"""The engine makes every turn a transaction. It owns the interfaces it needs and knows no store.

Rooms, from the lowest to the highest; each imports only those before it:

    ports, usage, limits, clock, admission   what the engine needs from outside, and its bounds
    lane          which turn may run: queue, leases, writes that survive a cancelled caller
    history       turns of a branch, as a turn and its model see them
    feed          changes an owner can follow
    conversations find, list, read, search; flags
    resend        match the history that a client sends with its request
    access        tokens and share links
    attempt       transactions on attempts: keys, retries, stops, ends, takeovers, outcomes
    process       state that the tasks of one process share
    events        read a turn while it runs and after
    lifecycle     create, undo, switch, fork, reset, delete, expire
    turn          request, begin, run, commit, finish
    check, transfer, recovery   built on all of these
"""
