"""Offline evaluation: what a plan's answers would be worth on data whose right answers are known.

The real parts do the work: exemplars are ingested into a store of their own, every query draws its slots as in the
service, and the engine answers once per slot (:mod:`.dataset`). Only then is noise drawn, many times over the same
outputs, so one pass over the data serves every budget (:mod:`.labels`, :mod:`.texts`). The data must be public, or
yours to look at: what is measured here is not private.
"""
