"""A trained bundle, signed and stored in the folder that services read."""

from pathlib import Path

from accounting.ledger.events import BundlePublished
from exemplar_store.key_files import read_key_file
from sanitization.restore import publishing
from sanitization.restore.bundle import Bundle, signing_key
from service.operations.command import command
from service.operations.roles import Actor, Right
from service.records.records import Records, audited


@command(Right.DECIDE)
def publish(actor: Actor, records: Records, folder: Path, key: Path, margin: float) -> Bundle:
    """Publish a finished job's bundle, and record it in the audit trail.

    Args:
        actor: the admin.
        records: opened records, whose settings name the folder of bundles.
        folder: folder of the job.
        key: file of an Ed25519 private key, PEM.
        margin: share of answers by which profiles must beat their controls.

    Raises:
        ValueError: the settings name no folder for bundles; others can read the key; or the job is not finished, or
            its profiles restore too little.
    """
    root = records.settings.restore_bundles
    if root is None:
        raise ValueError("set DPICL_RESTORE_BUNDLES to the folder that the service reads")
    read_key_file(key)  # refuses one that others can read
    with records.database.begin() as connection:  # an event that cannot be stored is an error, not a result
        made = publishing.publish(folder, root, signing_key(key), margin)
        declared = made.manifest.declared
        happened = BundlePublished(
            bundle=made.address,
            sha256=made.sha256,
            data=declared.data,
            data_sha256=declared.sha256,
            declared_by=declared.by,
            by=actor.id,
        )
        audited(happened)(connection)
    return made
