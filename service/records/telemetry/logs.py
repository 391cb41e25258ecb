"""Structured logs: events and public identifiers only, never content and never durations."""

import json
import logging
import sys

import structlog

log = structlog.get_logger()


def configure_logs(level: int = logging.INFO) -> None:
    """Write to standard error: lines of JSON, or of text where a person is looking.

    Events carry names and ids, never a query, an exemplar, a count of exemplars, or a duration.
    """
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),  # which may be another one later
        cache_logger_on_first_use=False,
    )


def relay(process: str, line: str) -> None:
    """Write a line of another process: a line of JSON as it is, any other as an event of its own.

    Args:
        process: name of the process.
        line: the line, without its end.
    """
    try:
        structured = isinstance(json.loads(line), dict)
    except ValueError:
        structured = False
    if structured:
        print(line, file=sys.stderr, flush=True)
    elif line.strip():
        log.info("printed", process=process, line=line)


class _Relaying(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        relay(record.name, self.format(record))


def relay_logging() -> None:
    """From now on, write libraries' console logs and warnings in this process as :func:`relay` does."""
    logging.captureWarnings(True)
    root = logging.getLogger()
    known = [logger for logger in root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    for logger in (root, *known):
        for handler in [one for one in logger.handlers if getattr(one, "stream", None) in (sys.stderr, sys.stdout)]:
            relaying = _Relaying(handler.level)
            relaying.filters = handler.filters
            logger.removeHandler(handler)
            logger.addHandler(relaying)
    if not root.handlers:  # Python itself would write warnings and errors, as plain lines
        root.addHandler(_Relaying(logging.WARNING))
