"""Fault injection: a real ``dpicl serve`` under load, broken on purpose, and its ledger replayed afterwards.

    python -m tests.chaos [--minutes 10] [--seed 1] [--only SCENARIO] [--output FOLDER]

:mod:`tests.chaos.world` sets a service up and tears it down, :mod:`tests.chaos.supervisor` restarts it as Kubernetes
would, :mod:`tests.chaos.load` asks and remembers what it was told, each file in :mod:`tests.chaos.faults` does one kind
of harm, and :mod:`tests.chaos.invariants` checks afterwards what must hold whatever happened. Everything listens on the
loopback interface or a socket in a temporary folder, and everything ends by itself.
"""
