"""Probes, and the heads they choose."""

import numpy as np
import pytest
import torch

from research.restore.probes import area_under_curve, common_heads, fit_logistic, probe

pytestmark = pytest.mark.model


def test_a_probe_finds_the_head_that_knows() -> None:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(400, 2, 3, 5, generator=generator)
    labels = (states[:, 1, 2, 0] + 0.3 * torch.randn(400, generator=generator) > 0).numpy()[:, None]
    area = probe(states[:300], labels[:300], states[300:], labels[300:])
    assert area.shape == (6, 1)
    assert area.argmax() == 5
    assert area[5, 0] > 0.95
    assert np.delete(area, 5).max() < 0.7


def test_area_under_curve() -> None:
    scores = np.array([[[0.1, 3.0], [0.4, 2.0], [0.35, 1.0], [0.8, 0.0]]])
    labels = np.array([[0, 0], [0, 1], [1, 0], [1, 0]])
    np.testing.assert_allclose(area_under_curve(scores, labels), [[0.75, 2 / 3]])
    assert area_under_curve(np.zeros((1, 4, 1)), np.array([[0], [1], [0], [1]])) == 0.5  # all equal
    assert area_under_curve(scores[:, :, :1], np.ones((4, 1))) == 0.5  # undefined


def test_softmax_regression() -> None:
    features = torch.eye(3).repeat(20, 1)
    weight, intercept = fit_logistic(features[None], features, exclusive=True)
    assert ((features @ weight[0] + intercept[0]).argmax(1) == features.argmax(1)).all()


def published_ranks(quality: np.ndarray, count: int) -> list[int]:
    """Algorithm 1 as the paper has it: the mean over the lists that a head is on."""
    scores: dict[int, list[int]] = {}
    for type_ in range(quality.shape[1]):
        for place, head in enumerate(np.argsort(-quality[:, type_], kind="stable")[:count]):
            scores.setdefault(int(head), []).append(count - place)
    return sorted(sorted(scores, key=lambda head: -np.mean(scores[head]))[:count])


def test_often_second_beats_once_first() -> None:
    """E7: head 0 is second for nine types out of ten; heads 1 and up are first for one type each, and useless else."""
    quality = np.full((12, 10), 0.5)
    quality[0] = 0.8
    quality[np.arange(1, 11), np.arange(10)] = 0.9
    assert common_heads(quality, 2)[0] == 0
    assert 0 not in published_ranks(quality, 2)
    assert common_heads(quality, 12) == list(range(12))
