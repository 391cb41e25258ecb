"""How fast texts are sanitised, compared with a plain program for each paper's mechanism.

Texts have 50 words that the vocabulary knows. A plain program computes a word's distances, weights them, and calls
``numpy.random.choice``, as the papers' code does; where that keeps distances or lists, so does the plain program. Words
and vectors are made up: clusters on a sphere of 384 dimensions. Times are processor time, in milliseconds per text.

    python benchmarks/sanitizing.py            # 11,000 words, then 30,000 to be built: some minutes, 1 GB of disk
    python benchmarks/sanitizing.py --quick    # 1,000 words, then 3,000
"""

from __future__ import annotations

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))  # one thread

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from sanitization.mechanisms import CORRECTED, RESPONSES
from sanitization.published.rantext import rate
from sanitization.text import open_sanitizer
from sanitization.vocabulary import Vocabulary

EPSILON, NOMINAL, LENGTH, LIST = 8.0, 6.0, 50, 20
ALPHABET = "bcdfghjklmnpqrstvwxz"
COLD = """
import sys, time
from pathlib import Path
import numpy as np
began = time.perf_counter()
from sanitization.text import open_sanitizer
from sanitization.vocabulary import Vocabulary
folder = Path(sys.argv[1])
stored = np.load(folder / "words.npz")
words = Vocabulary(stored["words"].tolist(), stored["vectors"])
sanitizer = open_sanitizer("medoid_rr", words, float(sys.argv[2]), folder)
sanitizer.sanitize(" ".join(stored["words"][:50].tolist()))
print(time.perf_counter() - began, time.process_time())
"""


def made_up(count: int) -> Vocabulary:
    """A vocabulary of made-up words, with vectors in clusters."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(count // 10, 384))
    vectors = centres[rng.integers(len(centres), size=count)] + 0.7 * rng.normal(size=(count, 384))
    names = ["".join(ALPHABET[at // 20**place % 20] for place in range(4)) for at in range(count)]
    return Vocabulary(names, (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32))


def plain(words: Vocabulary) -> dict[str, Callable[[int], int]]:
    """Functions that draw a word's replacement, by the mechanism in each paper."""
    rng = np.random.default_rng(1)
    vectors, names = words.vectors, np.arange(len(words))
    lists: dict[int, np.ndarray] = {}
    spans = vectors.max(axis=0) - vectors.min(axis=0)
    half = len(words) // 2  # frequent words come first
    sizes = rng.integers(1, LIST + 1, size=len(words))  # DYNTEXT draws the sizes of lists once, from noise

    def distances(x: int) -> np.ndarray:
        return np.linalg.norm(vectors - vectors[x], axis=1)

    def choose(among: np.ndarray, weights: np.ndarray) -> int:
        return int(rng.choice(among, p=weights / weights.sum()))

    def santext(x: int) -> int:
        return choose(names, np.exp(-NOMINAL / 2 * distances(x)))

    def custext(x: int) -> int:
        if x not in lists:
            lists[x] = np.argsort(distances(x))[:LIST]
        d = np.linalg.norm(vectors[lists[x]] - vectors[x], axis=1)
        return choose(lists[x], np.exp(-NOMINAL / 2 * d / d.max()))

    def rantext(x: int) -> int:
        d = distances(x)
        radius = np.linalg.norm(rng.laplace(scale=spans / rate(NOMINAL)))
        near = np.flatnonzero(d < radius)
        return choose(near, np.exp(NOMINAL / 2 * (1 - d[near] / radius))) if len(near) else x

    def santext_plus(x: int) -> int:
        if x < half and rng.random() < 0.8:
            return x
        return choose(names[half:], np.exp(-NOMINAL / 2 * distances(x)[half:]))

    def dyntext(x: int) -> int:
        d = distances(x)
        near = np.argsort(d)[: sizes[x]]
        return choose(near, np.exp(NOMINAL / 2 * (1 - d[near] / d.max())))

    def cape(x: int) -> int:
        d = distances(x)
        utility = np.exp(-(d - d.min()) / (d.max() - d.min()))
        step = (utility.max() - utility.min()) / 50
        bucket = np.minimum((utility - utility.min()) // step, 49)
        used = np.unique(bucket)
        weights = np.exp(NOMINAL / 2 * np.array([utility[bucket == one].mean() for one in used]))
        one = used[rng.choice(len(used), p=weights / weights.sum())]
        return int(rng.choice(names[bucket == one]))

    return {
        "santext": santext,
        "santext_plus": santext_plus,
        "custext": custext,
        "rantext": rantext,
        "dyntext": dyntext,
        "cape": cape,
    }


def times_ms(work: Callable[[], object], runs: int) -> tuple[float, float]:
    """Median and 99th percentile of the processor time, in milliseconds."""
    work()
    took = []
    for _ in range(runs):
        began = time.process_time()
        work()
        took.append(1000 * (time.process_time() - began))
    return float(np.median(took)), float(np.quantile(took, 0.99))


def compare(words: Vocabulary, runs: int) -> None:
    """Time every mechanism, and the plain programs of the published ones."""
    rng = np.random.default_rng(2)
    chosen = rng.integers(len(words), size=LENGTH)
    text = " ".join(words.words[x] for x in chosen)
    others = plain(words)
    print(f"{LENGTH} words, {len(words):,} known, ε = {EPSILON:g}      ms    99 %  plain ms   ratio")
    for name in (*RESPONSES, *CORRECTED):
        with TemporaryDirectory() as folder:
            sanitizer = open_sanitizer(name, words, EPSILON, Path(folder))
            median, slow = times_ms(lambda sanitizer=sanitizer: sanitizer.sanitize(text), runs)
        line = f"{name:36} {median:6.3f} {slow:7.3f}"
        if name in others:
            other, _ = times_ms(lambda name=name: [others[name](int(x)) for x in chosen], max(3, runs // 50))
            line += f" {other:9.2f} {other / median:7.1f}"
        print(line, flush=True)


def build(count: int) -> None:
    """Build a sanitiser from vectors in this process, then load it from the cache in a new process."""
    with TemporaryDirectory() as name:
        folder, words = Path(name), made_up(count)
        began, worked = time.perf_counter(), time.process_time()
        open_sanitizer("medoid_rr", words, EPSILON, folder)
        took, worked = time.perf_counter() - began, time.process_time() - worked
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        np.savez(folder / "words.npz", words=np.array(words.words), vectors=words.vectors.astype(np.float32))
        cold = subprocess.run(
            [sys.executable, "-c", COLD, name, str(EPSILON)], capture_output=True, text=True, check=True
        )
        stored = sum(file.stat().st_size for file in folder.glob("*.npz")) - (folder / "words.npz").stat().st_size
        print(
            f"medoid_rr of {count:,} words: built in {took:.1f} s ({worked:.1f} s of the processor), "
            f"{memory:.2f} GB of memory, {stored / 1e6:.2f} MB"
        )
        took, worked = map(float, cold.stdout.split())
        print(f"cold start from what is kept: {took:.2f} s, the process {worked:.2f} s of the processor in all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1,000 words, then 3,000")
    quick = parser.parse_args().quick
    build(3_000 if quick else 30_000)  # first: its memory is that of the process so far
    compare(made_up(1_000 if quick else 11_000), 200 if quick else 1_000)


if __name__ == "__main__":
    main()
