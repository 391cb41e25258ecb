"""Fault injection: a real ``dpicl serve`` under load, broken on purpose, and its ledger replayed afterwards.

    python -m chaos [--minutes 10] [--seed 1] [--only SCENARIO] [--output FOLDER]

:mod:`chaos.world` sets a service up and tears it down, :mod:`chaos.supervisor` restarts it as Kubernetes
would, :mod:`chaos.load` asks and remembers what it was told, each file in :mod:`chaos.faults` does one kind
of harm, and :mod:`chaos.invariants` checks afterwards what must hold whatever happened. Everything listens on the
loopback interface or a socket in a temporary folder, and everything ends by itself.
"""
