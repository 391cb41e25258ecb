"""URLs of databases, read without repeating what may be part of a password."""

import re

import sqlalchemy as sa

HOW_TO_WRITE = "write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME, with %40 for @ in a password"
_SEVERAL_HOSTS = re.compile(r"(postgres[^:/]*://(?:[^@/]*@)?)([^@/?,]+(?:,[^@/?,]+)+)(/[^?]*)?(\?.*)?")


def read_url(url: str, name: str) -> sa.URL:
    """The parts of the URL of a database of any kind. White space around it does not count.

    Args:
        url: a URL such as ``sqlite:///FILE``, ``postgresql://...`` or ``mysql+pymysql://...``.
        name: the name that errors give it. They do not repeat the URL, since it may hold a password.

    Raises:
        ValueError: it is not a URL.
    """
    url = url.strip()
    if url[:1] in ("'", '"'):
        raise ValueError(f"{name} begins with a quotation mark: leave the quotes out")
    try:
        parsed = sa.make_url(_several_hosts(url))
    except (sa.exc.ArgumentError, ValueError):  # the latter repeats part of a password that is not encoded
        raise ValueError(f"{name} is not a URL; {HOW_TO_WRITE}") from None
    if "@" in (parsed.host or ""):  # the end of a password that is not encoded
        raise ValueError(f"{name} has more than one @; {HOW_TO_WRITE}")
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername in ("postgresql", "postgres") else parsed


def _several_hosts(url: str) -> str:
    """A URL whose hosts have ports, such as ``postgresql://user@one:5432,two:5432/name``, as SQLAlchemy reads it."""
    parts = _SEVERAL_HOSTS.fullmatch(url)
    if parts is None:
        return url
    begin, hosts, path, query = parts.groups()
    pairs = [host.rpartition(":") if ":" in host else (host, "", "5432") for host in hosts.split(",")]
    listed = f"host={','.join(host for host, _, _ in pairs)}&port={','.join(port for _, _, port in pairs)}"
    return f"{begin}{path or '/'}?{listed}{'&' + query[1:] if query else ''}"
