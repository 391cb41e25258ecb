"""Made-up data for newcomers: ``dpicl serve --synthetic``.

What makes a database synthetic is the key it is written under: one that is published. So it cannot be confused with a
real one, by any process: a service with a real key does not open it, and this mode does not open a real database.
A process that opens it recognises this, reports it with every answer (:mod:`service.engines.with_notice`), and takes
no exemplars (:mod:`service.records.synthetic_store`).
"""
