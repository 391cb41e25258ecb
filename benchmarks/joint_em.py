"""The time to draw k keywords, compared with the published algorithm of the joint exponential mechanism.

    python benchmarks/joint_em.py [--quick]
    python benchmarks/joint_em.py --sizes 1000 --k 5 --epsilon 3

The baseline, ``published``, is the algorithm of Gillenwater, Joseph, Muñoz Medina and Ribero 2022 (arXiv
2202.06770) in vectorised numpy: it sorts the k·d entries c₍ᵢ₎ - c₍ⱼ₎, made distinct by small terms, and counts the
sequences of each entry in log space; its randomness is numpy's, cheaper than a cryptographic generator's. Both
start from the same array of counts and take turns, so that other work on the machine affects both alike. The mean
loss of their draws shows that they are the same mechanism: the difference of the two means is given in standard
errors. ``release`` also counts 100 slots' words first. The counts are those of 100 slots that each name 30 words,
some words much more often than others.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from aggregation.keyword_joint_em import JointExponentialMechanism

SLOTS, WORDS_PER_SLOT = 100, 30


def published(counts: np.ndarray, k: int, rate: float, generator: np.random.Generator) -> list[int]:
    """Draw k places of the counts as the paper does, in O(d·k·log(d·k))."""
    d = len(counts)
    order = np.argsort(-counts, kind="stable")
    ordered = counts[order]
    rows, columns = np.arange(1, k + 1)[:, None], np.arange(1, d + 1)[None, :]
    entries = ((ordered[:k, None] - ordered) + (d * (k - rows) + columns) / (2 * d * k)).ravel()
    ranking = np.argsort(entries)
    row, column = ranking // d + 1, ranking % d + 1
    choices = column - row + 1  # number of words for this row, up to and including this entry
    started = np.zeros(k, dtype=np.int64)
    started[row[choices == 1] - 1] = np.flatnonzero(choices == 1)
    first = started.max()  # from here on every row has a choice
    log_choices = np.log(np.maximum(choices, 1))
    growth = np.where(choices > 1, log_choices - np.log(np.maximum(choices - 1, 1)), 0.0)
    log_sequences = (np.cumsum(growth) - log_choices)[first:]
    log_weights = log_sequences - rate * np.floor(entries[ranking[first:]])
    drawn = first + int(np.argmax(log_weights + generator.gumbel(size=len(log_weights))))
    ends = np.zeros(k, dtype=np.int64)
    np.maximum.at(ends, row[: drawn + 1] - 1, column[: drawn + 1])
    fixed, word = int(row[drawn]) - 1, int(column[drawn]) - 1
    used = [word]
    sequence = [word] * k
    for place in range(k):
        if place != fixed:
            while (candidate := int(generator.integers(ends[place]))) in used:
                pass
            used.append(candidate)
            sequence[place] = candidate
    return [int(order[i]) for i in sequence]


def slots(size: int, generator: np.random.Generator) -> list[set[str]]:
    popularity = 1 / np.arange(1, size + 1) ** 0.8
    popularity /= popularity.sum()
    return [
        {f"word{i}" for i in generator.choice(size, WORDS_PER_SLOT, replace=False, p=popularity)} for _ in range(SLOTS)
    ]


def loss(counts: np.ndarray, sequence: Sequence[int]) -> int:
    return int((np.sort(counts)[::-1][: len(sequence)] - counts[list(sequence)]).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="words in the domain")
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--draws", type=int, default=100, help="per figure")
    parser.add_argument("--quick", action="store_true", help="two small domains, ten draws")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sizes, arguments.draws = [1_000, 5_000], 10

    generator = np.random.default_rng(0)
    mechanism = JointExponentialMechanism(arguments.epsilon, arguments.k)
    print(f"{'words':>8} {'':>10} {'median ms':>10} {'p95 ms':>8} {'ratio':>7} {'mean loss':>10} {'std errors':>11}")
    for size in arguments.sizes:
        contributions = slots(size, generator)
        domain = [f"word{i}" for i in range(size)]
        place = {word: i for i, word in enumerate(domain)}
        counts = np.bincount([place[w] for words in contributions for w in words], minlength=size)

        def released(contributions=contributions, domain=domain, place=place) -> list[int]:
            return [place[word] for word in mechanism.release(contributions, domain)]

        ways: dict[str, Callable[[], Sequence[int]]] = {
            "published": partial(published, counts, mechanism.k, mechanism.rate, generator),
            "select": partial(mechanism.select, counts),
            "release": released,
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        losses: dict[str, list[int]] = {name: [] for name in ways}
        for draw in range(arguments.draws + 3):
            for name, way in ways.items():
                started = time.perf_counter()
                sequence = way()
                elapsed = time.perf_counter() - started
                losses[name].append(loss(counts, sequence))
                if draw >= 3:
                    times[name].append(elapsed)
        baseline, reference = float(np.median(times["published"])), np.array(losses["published"])
        for name in ways:
            median, p95 = np.median(times[name]), np.quantile(times[name], 0.95)
            mine = np.array(losses[name])
            error = np.sqrt((mine.var() + reference.var()) / len(mine))
            apart = (mine.mean() - reference.mean()) / error if error else 0.0
            print(
                f"{size:>8,} {name:>10} {median * 1e3:>10.3f} {p95 * 1e3:>8.3f} {median / baseline:>7.4f}"
                f" {mine.mean():>10.3f} {apart:>11.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
