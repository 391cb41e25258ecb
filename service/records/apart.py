"""Work on whole knowledge bases by another process: in the one that serves requests it would show in their time."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from accounting.plans.plan import CalibratedPlan


class Apart(Protocol):
    """Another process, which reads whole knowledge bases."""

    def make(self, task: str) -> None:
        """Make a task's one-time release; as :data:`service.answering.plans.signing.Make`."""

    def find_topics(self, calibrated: CalibratedPlan) -> Mapping[str, np.ndarray]:
        """Find the topic of every unit; as :func:`service.answering.plans.signing.find_topics`."""
