"""The service's own tables. The ledger's and the exemplar store's are theirs."""

import sqlalchemy as sa

from accounting.ledger.tables import NAMES, UtcDateTime

metadata = sa.MetaData(naming_convention=NAMES)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("name", sa.String(200), nullable=False),
    sa.Column("role", sa.String(20), nullable=False),
    sa.Column("token_sha256", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("last_used_at", UtcDateTime),
    sa.Column("revoked_at", UtcDateTime),
    sa.Column("rate_per_minute", sa.Integer, comment="requests; NULL: no limit"),
    sa.Column("scope", sa.Text, comment="knowledge bases and tasks that it may ask, with commas between; NULL: all"),
    sa.Column("expires_at", UtcDateTime, comment="refused from then on; NULL: never"),
    sa.Column("rotated_at", UtcDateTime, comment="when its token was replaced last; NULL: never"),
    sa.CheckConstraint("role IN ('admin', 'analyst', 'viewer', 'auditor')", name="role_known"),
    comment="API keys by the hash of their token.",
)

retired_tokens = sa.Table(
    "retired_tokens",
    metadata,
    sa.Column("token_sha256", sa.LargeBinary, primary_key=True),
    sa.Column("key_id", sa.String(36), nullable=False),
    sa.Column("ends_at", UtcDateTime, nullable=False, comment="refused from then on"),
    comment="Tokens that were replaced and still stand for their key for a while.",
)

admin_sessions = sa.Table(
    "admin_sessions",
    metadata,
    sa.Column("token_sha256", sa.LargeBinary, primary_key=True),
    sa.Column("key_id", sa.String(36), nullable=False),
    sa.Column("csrf", sa.String(64), nullable=False, comment="what the session's forms must carry"),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("expires_at", UtcDateTime, nullable=False),
    sa.Column("issuer", sa.String(200), comment="of a person; NULL: signed in with a key, else key_id is empty"),
    sa.Column("subject", sa.String(200), comment="who a person is to the issuer"),
    sa.Column("name", sa.String(200), comment="what a person is called"),
    sa.Column("role", sa.String(20), comment="a person's"),
    comment="Admins signed in to the dashboard, by the hash of their cookie.",
)

engines = sa.Table(
    "engines",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("first_seen_at", UtcDateTime, nullable=False),
    sa.Column("name", sa.String(100), nullable=False),
    sa.Column("isolation", sa.Text, nullable=False),
    sa.Column("is_llm", sa.Boolean, nullable=False),
    sa.Column("notice", sa.Text, nullable=False),
    sa.Column("remote", sa.Boolean, nullable=False),
    sa.Column("writes_together", sa.Boolean, nullable=False),
    sa.Column("writing_slots", sa.Integer, nullable=False, comment="that may write an answer together"),
    sa.Column("cache_tokens", sa.BigInteger, nullable=False, comment="that its cache has room for; 0: it has none"),
    sa.Column("model_tokens", sa.Integer, nullable=False, comment="of a prompt and its answer; 0: it counts none"),
    comment="Engines as they described themselves; a row where one differs from the one before.",
)

heartbeats = sa.Table(
    "heartbeats",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False, comment="1"),
    sa.Column("at", sa.Float, nullable=False, comment="Unix time of the last one"),
    comment="One row, written now and then: a database that cannot be written to takes no charge.",
)

requests = sa.Table(
    "requests",
    metadata,
    sa.Column("key_id", sa.String(200), primary_key=True, comment="the API key that sent it"),
    sa.Column("name", sa.String(255), primary_key=True, comment="its Idempotency-Key"),
    sa.Column("request", sa.LargeBinary, nullable=False, comment="of what was sent, under a secret key"),
    sa.Column("attempt", sa.String(36), nullable=False, unique=True),
    sa.Column("begun_at", UtcDateTime, nullable=False, index=True),
    sa.Column("done", sa.Boolean, nullable=False, comment="whether it changed what it was to change"),
    sa.Column("status", sa.Integer, comment="HTTP status code of its response"),
    sa.Column("body", sa.LargeBinary, comment="of its response, JSON, encrypted; NULL: none is kept"),
    comment="Requests that change something, by which their repeats are recognised for some days.",
)

rate_limits = sa.Table(
    "rate_limits",
    metadata,
    sa.Column("name", sa.String(300), primary_key=True),
    sa.Column("free_at", sa.Float, nullable=False, comment="when all of its burst is free again, as Unix time"),
    comment="How fast each caller has been: one number by the generic cell rate algorithm.",
)

text_costs = sa.Table(
    "text_costs",
    metadata,
    sa.Column("owner", sa.String(200), primary_key=True, comment="whose texts: a key's id, or a person"),
    sa.Column("conversation", sa.String(200), primary_key=True, comment="empty for all of the owner's together"),
    sa.Column("texts", sa.BigInteger, nullable=False),
    sa.Column("words", sa.BigInteger, nullable=False, comment="drawn, each at its epsilon"),
    sa.Column("epsilon", sa.Float, nullable=False),
    comment="ε spent on sanitised texts, by the person they are about.",
)

sanitized_texts = sa.Table(
    "sanitized_texts",
    metadata,
    sa.Column("digest", sa.LargeBinary, primary_key=True, comment="of owner, text and sanitiser, under a secret key"),
    sa.Column("sanitized", sa.Text, nullable=False, comment="what may leave, and has the text's own protection"),
    comment="Sanitised texts: the same text of the same owner is never drawn twice.",
)
