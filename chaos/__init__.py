"""Fault injection: a real ``dpicl serve`` under load, broken on purpose, and its ledger replayed afterwards.

    python -m chaos [--minutes 10] [--seed 1] [--only SCENARIO] [--output FOLDER]

:mod:`chaos.world` sets up a service and tears it down. :mod:`chaos.supervisor` restarts it as Kubernetes would.
:mod:`chaos.load` asks questions and records the responses. Each module in :mod:`chaos.faults` injects one kind of
fault. Afterwards, :mod:`chaos.invariants` checks what must hold after any fault. Everything listens on the loopback
interface or on a socket in a temporary folder, and everything stops by itself.
"""
