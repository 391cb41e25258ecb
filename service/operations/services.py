"""Everything a request needs, opened once from the settings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from sanitization.whole import NAME as WHOLE
from sanitization.whole import read_public_texts
from service.answering.answering import Answering
from service.answering.kept_blocks import KeptBlocks
from service.answering.latency import SMALLEST_S, UNPADDED, Grains
from service.answering.measured_grains import MeasuredGrains
from service.answering.plans.signing import Make, release
from service.answering.realigning import Realigner
from service.answering.restoring import Restoring
from service.answering.sanitizing_engine import SanitizingEngine
from service.answering.stages import Stages
from service.answering.trials.trials import Trials
from service.answering.turns import NoTurns, Turns
from service.engines.configs import RealignConfig, SanitizeConfig
from service.engines.embedding.embedder import TextEmbedder
from service.engines.embedding.sanitizers import Sanitizers, setting_for
from service.engines.embedding.words import cache_folder
from service.engines.protocol import Engine, Steerer
from service.engines.with_notice import WithNotice
from service.records.apart import Apart
from service.records.records import Records
from service.records.synthetic_store import NOTICE
from service.records.telemetry.heartbeat import Heartbeat
from service.records.witness import check_witness
from service.settings import Settings


class SanitizersMissingError(ValueError):
    """An engine's questions are to be sanitised, and the settings provide no sanitiser."""


@dataclass(frozen=True, kw_only=True)
class Services:
    """The records, together with everything that answers queries."""

    records: Records
    engine: Engine
    embedder: TextEmbedder
    grains: Grains
    heartbeat: Heartbeat
    answering: Answering
    trials: Trials
    make: Make
    sanitizers: Sanitizers
    restoring: Restoring


def check_sanitizers(settings: Settings, sanitize: SanitizeConfig | None) -> Sequence[str]:
    """Check that questions can be sanitised, if they are to be.

    Returns:
        The public texts, if the settings name any.

    Raises:
        SanitizersMissingError: questions are to be sanitised, and the settings provide no sanitiser for them.
        OSError: the public texts cannot be read.
        ValueError: the public texts are too few or too many.
    """
    public_texts = () if settings.public_texts is None else read_public_texts(settings.public_texts)
    if sanitize is not None and not (public_texts if sanitize.mechanism == WHOLE else settings.sanitizer_words):
        raise SanitizersMissingError(
            f"the engine's questions are to be sanitised by {sanitize.mechanism}: set {setting_for(sanitize.mechanism)}"
        )
    return public_texts


def open_services(
    records: Records,
    engine: Engine,
    embedder: TextEmbedder,
    *,
    sanitize: SanitizeConfig | None = None,
    local: Engine | None = None,
    realign: RealignConfig | None = None,
    steerer: Steerer | None = None,
    apart: Apart | None = None,
    turns: Turns | None = None,
) -> Services:
    """Put an engine and an embedder beside the records.

    Args:
        records: opened records.
        engine: engine that answers.
        embedder: embedder of texts.
        sanitize: sanitiser of questions, which the engine sees only sanitised; None: it sees them as asked.
        local: engine beside the service that answers slots of sanitised questions instead; None: the engine does.
        realign: model that fits released texts to questions as they were asked; None: they stay as released.
        steerer: engine that answers redacted texts, by the bundles that it has; None: no engine can be steered.
        apart: process that reads whole knowledge bases; None: this process does.
        turns: turns to ask the engine, where other processes ask it, too; None: this one alone does.

    Raises:
        SanitizersMissingError: questions are to be sanitised, and the settings provide no sanitiser for them.
        OSError: the public texts cannot be read.
        ValueError: the public texts are too few or too many; or the settings neither name the witness nor declare that
            there is none.
    """
    records = replace(records, apart=apart)
    settings = records.settings
    check_witness(settings)
    public_texts = check_sanitizers(settings, sanitize)
    sanitizers = Sanitizers(settings.sanitizer_words, public_texts, embedder, cache_folder())
    if sanitize is not None:
        engine = SanitizingEngine(engine, sanitize, sanitizers, records.texts, local)
    if notices := [NOTICE] * records.synthetic + [UNPADDED] * settings.latency_unpadded:
        engine = WithNotice(engine, " ".join(notices))
    turns = NoTurns() if settings.latency_unpadded else turns or Turns()
    stages = Stages(engine, embedder, settings.query_timeout_s, turns)
    blocks = KeptBlocks(stages, records.store, records.audit)
    grains = Grains()
    public_grain_s = 0.0
    if not settings.latency_unpadded:
        grain_s = None if settings.latency_grain_ms is None else settings.latency_grain_ms / 1000
        grains = MeasuredGrains(stages, records.store, records.ledger, blocks, grain_s=grain_s)
        public_grain_s = grain_s or SMALLEST_S
    answering = Answering(
        records.ledger,
        records.store,
        stages,
        digest_key=records.digest_key,
        grains=grains,
        blocks=blocks,
        public_grain_s=public_grain_s,
        max_in_flight=settings.max_queries_in_flight,
        realign=Realigner(realign) if realign else None,
    )
    restoring = Restoring(
        settings.restore_bundles,
        engine,
        steerer,
        timeout_s=settings.query_timeout_s,
        max_in_flight=settings.max_queries_in_flight,
        grain_s=public_grain_s,
        turns=turns,
    )
    return Services(
        records=records,
        engine=engine,
        embedder=embedder,
        grains=grains,
        heartbeat=Heartbeat(records.database, engine, steerer),
        answering=answering,
        trials=Trials(stages, latency_grain_s=public_grain_s),
        make=apart.make if apart else partial(release, records, embed=embedder.embed, stages=stages),
        sanitizers=sanitizers,
        restoring=restoring,
    )
