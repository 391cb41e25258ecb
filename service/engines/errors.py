"""Why an engine does not answer. The probe raises these, before anything private was read."""

from service.problem_kinds import ProblemKind, RefusalError


class EngineUnavailableError(RefusalError, RuntimeError):
    """The engine cannot answer now. Only the zero-shot probe raises it, before anything private was read."""

    kind = ProblemKind.ENGINE_UNAVAILABLE
    retry_after_s: float | None = 5
    hint = "check --engine-config and, if remote, DPICL_REMOTE_API_KEY, then rerun"


class EngineBusyError(EngineUnavailableError):
    """The engine has as much work as it takes on. Only the zero-shot probe raises it; come back in a moment."""

    retry_after_s: int = 5


class NotKeptError(EngineUnavailableError):
    """The engine has started anew, and must keep a task's blocks again. Only the zero-shot probe raises it."""


class UnusableReplyError(EngineUnavailableError):
    """The engine replies, but with nothing to use; the message names what the operator can change. Only the probe
    raises it."""

    kind = ProblemKind.UNUSABLE_REPLY
    retry_after_s = None


class UnanswerableQueryError(ValueError):
    """This engine can never answer this query; the message names what to ask instead. Only the probe raises it."""
