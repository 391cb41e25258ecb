"""The attention heads that know of a type of span: logistic probes, and heads that serve many types (Algorithm 1).

Two of the paper's slips are mended. Its code labels full queries against redacted ones, with both halves of a pair on
either side of the split; here the label is whether the query has the type, people are split, and the measure is the
area under the ROC curve. Its algorithm averages a head's ranks over the types whose lists it is on, so a head that is
first once beats one that is second always; here an absent head scores 0, and the mean is over all types.
"""

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from sanitization.vocabulary import FloatArray

_STEPS, _RATE, _DECAY = 200, 0.05, 1e-3


def fit_logistic(features: Tensor, labels: Tensor, *, exclusive: bool = False) -> tuple[Tensor, Tensor]:
    """Logistic regressions on the same rows.

    Args:
        features: (m, N, d), one set for each of m models.
        labels: 0 or 1, (N, c), for c independent labels; with ``exclusive``, each row has one 1.
        exclusive: whether labels exclude each other (softmax).

    Returns:
        Weights (m, d, c) and intercepts (m, 1, c).
    """
    models, _, width = features.shape
    weight = torch.zeros(models, width, labels.shape[1], requires_grad=True)
    intercept = torch.zeros(models, 1, labels.shape[1], requires_grad=True)
    optimizer = torch.optim.Adam([weight, intercept], lr=_RATE)
    target = labels.expand(models, *labels.shape)
    for _ in range(_STEPS):
        logits = features @ weight + intercept
        if exclusive:
            loss = -(logits.log_softmax(-1) * target).sum(-1).mean(1).sum()
        else:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none").mean(1).sum()
        optimizer.zero_grad()
        (loss + _DECAY * (weight**2).sum()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return weight.detach(), intercept.detach()


def probe(train: Tensor, train_labels: np.ndarray, test: Tensor, test_labels: np.ndarray) -> FloatArray:
    """The area under the ROC curve of each head's probe for each type, (layers·heads, types); ½ where undefined.

    Args:
        train: states of people to learn from, (N, layers, heads, d).
        train_labels: whether their query has the type, (N, types).
        test: states of other people.
        test_labels: theirs.
    """
    areas = []
    for layer in range(train.shape[1]):
        inside, outside = train[:, layer].transpose(0, 1), test[:, layer].transpose(0, 1)
        mean, scale = inside.mean(1, keepdim=True), inside.std(1, keepdim=True) + 1e-6
        weight, intercept = fit_logistic((inside - mean) / scale, torch.tensor(train_labels, dtype=torch.float32))
        areas.append(area_under_curve(((outside - mean) / scale @ weight + intercept).numpy(), test_labels))
    return np.concatenate(areas)


def area_under_curve(scores: np.ndarray, labels: np.ndarray) -> FloatArray:
    """Chance that a row with the label scores above one without, (m, c), for scores (m, N, c) and labels (N, c)."""
    positive = labels.sum(axis=0)
    negative = len(labels) - positive
    ranks = (rankdata(scores, axis=1) * labels).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        area: FloatArray = (ranks - positive * (positive + 1) / 2) / (positive * negative)
    return np.where(positive * negative > 0, area, 0.5)


def common_heads(quality: FloatArray, count: int) -> list[int]:
    """The heads with the best mean score over all types: on a type's list of ``count`` heads, the first scores
    ``count``, the last 1, and a head that is not on it 0.

    Args:
        quality: quality of each head for each type, (heads, types).
        count: K, at most as many as there are heads.
    """
    order = np.argsort(-quality, axis=0, kind="stable")[:count]
    score = np.zeros(len(quality))
    for place, heads in enumerate(order):
        np.add.at(score, heads, count - place)
    return [int(head) for head in np.sort(np.argsort(-score, kind="stable")[:count])]
