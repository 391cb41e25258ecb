"""A finished training job's folder, and the bundle that it becomes if its controls are beaten."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.numpy
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sanitization.restore import bundle
from sanitization.restore.profiles import Book

MARGIN = 0.2
JOB, REPORT, RESULT = "job.json", "report.json", "result.safetensors"
"""Files of a job's folder: its settings, its report, and what it trained."""


class JobError(ValueError):
    """A job that cannot be continued, or published."""


@dataclass(frozen=True)
class Controls:
    """Shares of right answers, on people left out of the training."""

    full: float
    """The model, with all spans: the best to be hoped for."""
    redacted: float
    """The model, from the redacted text."""
    restored: float
    """Steered by the query's own meta vector, without noise."""
    own_profile: float
    """Steered by the query's own profile, without noise."""
    own_profile_as_text: float
    """The model, with the spans of its own profile's medoid put back, without noise."""
    another: float
    """Steered by the meta vector of another person with another answer."""
    constant: float
    """Steered by one vector, trained as long, the same for every query."""
    option_prior: float
    """Always the commonest answer."""
    redacted_attacker: float
    """Guessed by an attacker who sees the redacted texts and has learnt from the training data."""

    def passes(self, margin: float) -> bool:
        """Whether profiles restore more than what carries no information, by this margin."""
        return self.own_profile >= margin + max(self.redacted, self.another, self.constant)


def read_report(folder: Path) -> dict[str, Any]:
    """The report of a finished job.

    Raises:
        JobError: it is not finished.
    """
    try:
        return json.loads((folder / REPORT).read_text())
    except OSError as error:
        raise JobError(f"{folder} holds no finished job: dpicl restore train") from error


def publish(folder: Path, root: Path, key: Ed25519PrivateKey, margin: float = MARGIN) -> bundle.Bundle:
    """Sign a finished job's bundle and store it for a service.

    Args:
        folder: folder of the job.
        root: root folder of the bundles.
        key: private key of the publisher.
        margin: lead that profiles must have over what carries no information, as a share of answers.

    Raises:
        JobError: it is not finished, or does not restore enough.
    """
    report, job = read_report(folder), json.loads((folder / JOB).read_text())
    controls = Controls(**report["controls"])
    if not controls.passes(margin):
        raise JobError(
            f"not published: profiles answer {controls.own_profile:.1%} right, and a constant vector "
            f"{controls.constant:.1%}, another person's {controls.another:.1%}, none {controls.redacted:.1%}; "
            f"the margin above all of them is {margin:.0%}"
        )
    config = job["config"]
    arrays = safetensors.numpy.load_file(folder / RESULT)
    medoids = tuple(tuple(spans) for spans in report["medoids"])
    manifest = {
        **{name: config[name] for name in ("name", "prompt", "options", "placeholder", "longest_text", "weights")},
        "types": report["types"],
        **{name: config.get(name) for name in ("meaning", "text_prompt")},
        "model": job["model"],
        "steering": {"scale": report["scale"], "heads": report["heads"], "head_size": arrays["table"].shape[2]},
        "declared": {"data": config["declared"], "by": config["declared_by"], "sha256": job["data_sha256"]},
        "report": {name: report[name] for name in ("rows", "chosen_for_epsilon", "chosen_among", "controls", "table")},
    }
    made = Book(tuple(report["types"]), arrays["affinity"], medoids)
    return bundle.load(bundle.publish(root, manifest, made, {"table": arrays["table"]}, key))
