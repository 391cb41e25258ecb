"""Knowledge bases on a database: ingest, slots drawn by Poisson sampling, deletion."""

from exemplar_store.encryption import MasterKey, load_key
from exemplar_store.errors import (
    BadRowError,
    DatabaseInUseError,
    EmbeddingError,
    EncryptionKeyError,
    ExemplarStoreError,
    InvalidKnowledgeBaseError,
    InvalidUnitIdError,
    KnowledgeBaseExistsError,
    KnowledgeBaseNotEmptyError,
    OtherEmbeddingModelError,
    TamperedError,
    UnitTooLargeError,
    UnknownKnowledgeBaseError,
    UnknownUnitError,
    UnrecognisedUnitsError,
    WrongKeyError,
)
from exemplar_store.exemplar import MAX_EXEMPLAR_BYTES, MAX_EXEMPLARS_PER_UNIT, MAX_UNIT_BYTES, Exemplar, Slot
from exemplar_store.ingest import IngestReport
from exemplar_store.keyring import Keyring
from exemplar_store.knowledge_base import LEAST_EXEMPLAR_BYTES, KnowledgeBase, default_response_field
from exemplar_store.made_up import LargestSample, made_up_slots
from exemplar_store.nearness import Nearest
from exemplar_store.packed_slots import PackedSlots
from exemplar_store.parts import Part
from exemplar_store.rows import Layout, Row, read_csv, read_json_lines
from exemplar_store.store import ExemplarStore
from exemplar_store.topics import OnTopic, TopicList
