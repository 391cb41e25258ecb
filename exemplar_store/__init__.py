"""Knowledge bases on a database: ingest, slots drawn by Poisson sampling, deletion."""

from exemplar_store.data_keys import DataKeys, Master
from exemplar_store.errors import (
    BadRowError,
    EmbeddingError,
    EncryptionKeyError,
    ExemplarStoreError,
    InvalidKnowledgeBaseError,
    KnowledgeBaseExistsError,
    TamperedError,
    UnitTooLargeError,
    UnknownKnowledgeBaseError,
    UnknownUnitError,
    WrongKeyError,
)
from exemplar_store.exemplar import Exemplar, Slot
from exemplar_store.ingest import MAX_EXEMPLARS_PER_UNIT, IngestReport
from exemplar_store.knowledge_base import KnowledgeBase
from exemplar_store.master_key import load_key
from exemplar_store.rows import Layout, Row, read_csv, read_json_lines
from exemplar_store.store import ExemplarStore

__all__ = [
    "MAX_EXEMPLARS_PER_UNIT",
    "BadRowError",
    "DataKeys",
    "EmbeddingError",
    "EncryptionKeyError",
    "Exemplar",
    "ExemplarStore",
    "ExemplarStoreError",
    "IngestReport",
    "InvalidKnowledgeBaseError",
    "KnowledgeBase",
    "KnowledgeBaseExistsError",
    "Layout",
    "Master",
    "Row",
    "Slot",
    "TamperedError",
    "UnitTooLargeError",
    "UnknownKnowledgeBaseError",
    "UnknownUnitError",
    "WrongKeyError",
    "load_key",
    "read_csv",
    "read_json_lines",
]
