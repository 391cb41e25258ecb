"""Everything that a person can do with the service, a module for each kind of thing, beneath all three faces.

A face (REST, command line, dashboard) reads an input, calls one function here with the :class:`Actor` who asks, and
shows the result. Nothing here knows of HTTP, terminals or pages.
"""
