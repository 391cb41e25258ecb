"""The exemplar store's tables, for SQLite and PostgreSQL.

A privacy unit has a *position* for life, a number below its knowledge base's ``next_position``. Sampling draws
positions, so it reads the sampled units' rows and no others. A forgotten unit keeps its position and its tag
(:mod:`exemplar_store.cohorts`): a position without exemplars yields nothing, and the others are sampled as before.

Uploads have numbers. An exemplar bears that of the upload that stored it, and of the one that replaced it. It is there
if the first is published, and the second is not (:mod:`exemplar_store.staging`).

Unit ids are not stored. A row carries a tag, made with a key of the knowledge base (see ``encryption``).
"""

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

data_key = sa.Table(
    "data_key",
    metadata,
    sa.Column(
        "number",
        sa.Integer,
        primary_key=True,
        autoincrement=False,
        comment="1, and one more whenever everything is encrypted anew",
    ),
    sa.Column("fingerprint", sa.String(16), nullable=False, comment="of the master key that opens it"),
    sa.Column("wrapped", sa.LargeBinary, nullable=False),
    comment="The data key, wrapped under the master key: one row.",
)

knowledge_bases = sa.Table(
    "knowledge_bases",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("public_size", sa.BigInteger, nullable=False),
    sa.Column("fields", sa.JSON, nullable=False),
    sa.Column("embedded_field", sa.String(64), nullable=False),
    sa.Column("response_field", sa.String(64), comment="embedded, too; NULL: no second one is"),
    sa.Column("max_exemplar_bytes", sa.Integer, nullable=False, comment="none is larger: latency grains rest on it"),
    sa.Column("remote_engine", sa.Boolean, nullable=False),
    # NULL until the first ingest decides; 0 where exemplars carry no embedding.
    sa.Column("embedding_dimension", sa.Integer),
    sa.Column("embedding_model", sa.String(64), comment="SHA-256 of the model that made them"),
    sa.Column("key_salt", sa.LargeBinary(16), nullable=False),
    sa.Column("key_check", sa.LargeBinary(16), nullable=False),
    sa.Column("next_position", sa.BigInteger, nullable=False),
    sa.Column("uploads", sa.Integer, nullable=False, comment="number of those that are published"),
    # Its number is its place in this list, from 2 on.
    sa.Column(
        "later_cohorts",
        sa.JSON,
        nullable=False,
        comment="of each cohort after the first: first position, public size",
    ),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
)

units = sa.Table(
    "units",
    metadata,
    sa.Column("kb_id", sa.Integer, sa.ForeignKey(knowledge_bases.c.id), primary_key=True, autoincrement=False),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("unit_tag", sa.LargeBinary(16), nullable=False),
    sa.UniqueConstraint("kb_id", "unit_tag"),
    sqlite_with_rowid=False,
)

exemplars = sa.Table(
    "exemplars",
    metadata,
    sa.Column("kb_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("content_tag", sa.LargeBinary(16), primary_key=True),
    # In the key, so that its index alone shows which exemplars are there.
    sa.Column("stored_in", sa.Integer, primary_key=True, autoincrement=False, comment="number of an upload"),
    sa.Column("replaced_in", sa.Integer, primary_key=True, autoincrement=False, comment="likewise; 0: in none"),
    # Before the payload: of a long row, SQLite reads no more than what is asked for.
    sa.Column("vector", sa.LargeBinary, comment="the rounded embedding, encrypted; NULL: it has none"),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.ForeignKeyConstraint(["kb_id", "position"], [units.c.kb_id, units.c.position]),
    # SQLite: a rowid table on purpose. WITHOUT ROWID keeps whole payloads in the inner nodes of the tree, which a
    # kilobyte per row makes four wide and a dozen deep; the key's own index is narrow (see benchmarks/sampling.py).
)

staged_uploads = sa.Table(
    "staged_uploads",
    metadata,
    sa.Column("kb_id", sa.Integer, sa.ForeignKey(knowledge_bases.c.id), primary_key=True, autoincrement=False),
    sa.Column("token", sa.LargeBinary(16), nullable=False, comment="of the process that writes it"),
    sa.Column("alive_at", sa.DateTime(timezone=True), nullable=False),
    comment="The upload that is being written to a knowledge base, or cleared.",
)

forgotten_meanwhile = sa.Table(
    "forgotten_meanwhile",
    metadata,
    sa.Column("kb_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    comment="Units that were forgotten while an upload was being written.",
)

unit_topics = sa.Table(
    "unit_topics",
    metadata,
    sa.Column("kb_id", sa.Integer, sa.ForeignKey(knowledge_bases.c.id), primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False, comment="of the signed plan"),
    sa.Column("task", sa.String(64), primary_key=True),
    sa.Column("page", sa.Integer, primary_key=True, autoincrement=False, comment="which positions it is of"),
    sa.Column("sealed", sa.LargeBinary, nullable=False, comment="the topic of each, encrypted"),
    comment="Which topic each unit is on in each task that has topics: found once, and kept when its exemplars change.",
)
