"""The reference of metrics, from what a service around an empty database shows to Prometheus."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from prometheus_client.metrics_core import Metric

from _site.tables import table
from accounting.replay.chain import Checked
from service.engines.protocol import EngineInfo
from service.gateway.telemetry.responses import Responses
from service.records.engine_record import note_engine
from service.records.records import open_records
from service.serving.metrics import Scrape
from service.settings import Settings

_HEAD = """# Metrics

For operators: everything that `GET /metrics` shows; see [metrics, traces, logs](../observability.md#metrics).
`task` includes its version: `support.queue@1`. No label holds a caller's text.

"""
_SUFFIX = {"counter": "_total", "info": "_info"}


def page() -> str:
    """Every metric with its type, its labels and its meaning."""
    rows = [
        [
            f"`{metric.name}{_SUFFIX.get(metric.type, '')}`",
            metric.type.replace("info", "gauge"),
            ", ".join(f"`{label}`" for label in _labels(metric)),
            metric.documentation,
        ]
        for metric in _metrics()
    ]
    return _HEAD + table(["metric", "type", "labels", "meaning"], rows)


def _metrics() -> list[Metric]:
    with TemporaryDirectory() as folder:
        records = open_records(Settings(database_url=f"sqlite:///{folder}/empty.sqlite", development=True))
        note_engine(records.database, EngineInfo("none", "none", False, "Only described."))
        scrape = Scrape(records, Responses(), Checked(0, broken=False), engine_up=True)
        found = list(scrape.collect())
        records.database.dispose()
    return found


def _labels(metric: Metric) -> list[str]:
    samples = [*metric.samples[0].labels] if metric.samples else []
    return samples or [*getattr(metric, "_labelnames", ())]
