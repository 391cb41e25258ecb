"""The admin's dashboard at ``/admin/``: pages rendered here, with htmx for what refreshes itself.

One file per page, each with its templates. Whatever a page shows is public by the privacy contract: plans, charges,
releases, refusals, keys, and what an admin did and when. Nothing read from an exemplar reaches one.
"""
