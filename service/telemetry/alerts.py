"""Soft alerts when a task has given 75, 90 and 100 % of its answers.

A charge knows how many answers it left, and no two charges of a task leave the same number, so of all replicas exactly
one finds that a mark was reached (twice only if that charge is voided and another takes its place).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import structlog

from accounting.ledger.budgets import SignedTask

log = structlog.get_logger()

MARKS = (100, 90, 75)
"""Percent of a task's answers."""

_ATTEMPTS = 4
_TIMEOUT_S = 10.0


def mark_reached(answers: int, left: int) -> int | None:
    """The mark that the newest charge reached, the highest if several, or None.

    Args:
        answers: how many the task may give in all.
        left: how many are left after the charge.
    """
    spent = answers - left
    return next((mark for mark in MARKS if spent == -(-answers * mark // 100)), None)


class Alerts:
    """Writes alerts to the log and posts them to a webhook.

    Args:
        webhook: where to post, or None. Its address may hold a secret, so it is never logged.
        pause_s: before the second attempt to post; doubled before each further one.
    """

    def __init__(self, webhook: str | None, *, pause_s: float = 1.0) -> None:
        self._webhook = webhook
        self._pause_s = pause_s
        self._posting: set[asyncio.Task[None]] = set()

    def charged(self, task: SignedTask, left: int) -> None:
        """Take note of a charge that left so many answers. Never waits, never fails."""
        mark = mark_reached(task.answers, left)
        if mark is None:
            return
        log.warning("answers_nearly_spent" if left else "answers_spent", task=task.address, percent=mark, left=left)
        if self._webhook is not None:
            alert = {
                "event": "budget.alert",
                "task": task.address,
                "knowledge_base": task.knowledge_base,
                "percent": mark,
                "answers": task.answers,
                "left": left,
                # What chat services show of a webhook's message.
                "text": f"{task.address} has given {mark} % of its answers: {left} of {task.answers} are left",
            }
            posting = asyncio.create_task(self._post(self._webhook, alert))
            self._posting.add(posting)
            posting.add_done_callback(self._posting.discard)

    async def drain(self) -> None:
        """Wait until what was begun is posted or given up (before shutting down)."""
        if self._posting:
            await asyncio.wait(self._posting)

    async def _post(self, webhook: str, alert: Mapping[str, Any]) -> None:
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._pause_s * 2 ** (attempt - 1))
            try:
                async with httpx.AsyncClient(timeout=_TIMEOUT_S) as client:
                    response = await client.post(webhook, json=alert)
                if response.is_success:
                    return
                why = f"status {response.status_code}"
            except httpx.HTTPError as error:
                why = type(error).__name__
        log.error("alert_not_posted", task=alert["task"], percent=alert["percent"], error=why)
