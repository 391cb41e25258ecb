"""Units are bounded in bytes, and renewals of keys keep hidden knowledge bases.

Nothing is changed but who may write: code of before would store units that are too large, forget a unit in one of its
two copies, and list hidden knowledge bases. ``exemplar_store.limits`` says what the bounds are for.
"""

import sqlalchemy as sa
from alembic import op

from accounting.ledger.compatibility import SchemaError

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

breaking = True

# 33 bytes are added to each exemplar by its encryption and its length; an embedding has two for each dimension.
TOO_LARGE = """
SELECT DISTINCT name FROM (
    SELECT k.name AS name
    FROM exemplars e JOIN knowledge_bases k ON k.id = e.kb_id
    GROUP BY k.name, k.embedding_dimension, e.position
    HAVING max(length(e.payload)) - (33 + 2 * coalesce(k.embedding_dimension, 0)) > 16384
        OR sum(length(e.payload)) - count(*) * (33 + 2 * coalesce(k.embedding_dimension, 0)) > 262144
) AS large ORDER BY name
"""


def upgrade() -> None:
    # How many there are is private, and this message may end in the log of a service that cannot start.
    found = op.get_bind().execute(sa.text(TOO_LARGE)).scalars().all()
    if found:
        told = ", ".join(map(repr, found))
        raise SchemaError(
            "this version allows an exemplar 16,384 bytes of text and a unit 262,144, so that how long an answer takes "
            f"does not tell whether a larger unit took part. Larger ones are stored in {told}. Nothing "
            "was changed. Either forget those units with the version of before (`dpicl kb forget`), as far as you know "
            "them from the files that were uploaded, or run `dpicl migrate --forget-oversized`, which deletes them "
            "all with their exemplars. Afterwards they can be uploaded again, with less of each"
        )


def downgrade() -> None:
    raise NotImplementedError("code of before would store larger units again; restore a backup instead")
