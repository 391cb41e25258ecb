"""PrivacyRestore from an empty folder: a made-up clinic, a model that knows it, a bundle, a service, and questions.

Run it with `make restore-demo`: some minutes on two cores, most of them for the little language model. Models and jobs
stay in var/restore; what is done there is not done again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from examples.restore.world import PROMPT, World, train_model, write
from examples.serving import dpicl, heading, serving, use_database_in
from sanitization.restore.client import Mode, RestoreClient
from service.cli.serve import DEFAULT_CONFIG

FOLDER = Path(__file__).parents[2] / "var" / "restore"
EPSILON = 6.0
ASKED = 40
MODES: tuple[Mode, Mode] = ("steer", "text")


def main(folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    world = World()
    heading("A made-up clinic: what patients report is private, and all but decides their illness")
    test = world.patients(4000, 9)
    for what, redacted in (("whole", False), ("redacted", True)):
        print(f"  the best possible guess from {what} texts: {world.best_guesses(test, redacted=redacted):.1%}")
    model = folder / "model"
    if not (model / "model.safetensors").exists():
        heading("A small language model learns to recognise illnesses in texts")
        train_model(model, world.patients(5000, 1))

    heading("Restoration vectors, a book of profiles, and a report with controls")
    write(folder / "patients.jsonl", world.patients(4000, 2))
    (folder / "train.yaml").write_text(yaml.safe_dump(settings(world), sort_keys=False))
    dpicl("restore", "train", str(folder / "train.yaml"), "--job", str(folder / "job"))

    with tempfile.TemporaryDirectory() as temporary:
        serve(Path(temporary), folder / "job", model, world)


def settings(world: World) -> dict[str, object]:
    return {
        "name": "clinic",
        "model": "model",
        "data": "patients.jsonl",
        "declared": "public",
        "declared_by": "made up by examples/restore",
        "prompt": PROMPT,
        "options": world.illnesses,
        "profiles": [9, 17, 65],  # half as many as illnesses, as many, and four times as many; and "none"
        "epsilon": EPSILON,
    }


def serve(folder: Path, job: Path, model: Path, world: World) -> None:
    use_database_in(folder)
    os.environ["DPICL_RESTORE_BUNDLES"] = str(folder / "bundles")
    heading("The bundle is signed and published; that is refused unless profiles beat their controls")
    key_file = folder / "key.pem"
    key_file.touch(mode=0o600)
    key_file.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    dpicl("restore", "publish", str(job), "--signing-key", str(key_file))

    config = yaml.safe_load(DEFAULT_CONFIG.read_text())
    engine = {"name": "vllm", "model": str(model), "dtype": "float32", "kv_cache_gib": 1, "enforce_eager": True}
    config["applications"][0]["args"]["restore"] = engine
    (folder / "serve.yaml").write_text(yaml.safe_dump(config))
    options = ("--config", str(folder / "serve.yaml"))
    with serving(folder, *options, what="Ray Serve, and vLLM to be steered", timeout_s=900) as client:
        ask(str(client.base_url), folder / "ledger.sqlite", world)


def ask(url: str, ledger: Path, world: World) -> None:
    heading(f"{ASKED} new patients ask with ε = {EPSILON:g}: the redacted text and one random number leave")
    key = os.environ["DPICL_API_KEY"]
    steering, filling = (
        RestoreClient(url, key, bundle="clinic@1", epsilon=EPSILON, ledger=ledger, budget=EPSILON * ASKED, mode=mode)
        for mode in MODES
    )
    right = dict.fromkeys(MODES, 0)
    with steering, filling:
        for number, row in enumerate(world.patients(ASKED, 10)):
            spans: list[str] = row["spans"]  # type: ignore[assignment]
            first, second = steering.ask(str(row["text"]), spans), filling.ask(str(row["text"]), spans)
            if first.profile != second.profile:
                sys.exit("a repeated question sent another number")
            for mode, answer in zip(MODES, (first, second), strict=True):
                right[mode] += answer.text == row["answer"]
            if number < 5:
                print(f"  {row['text']}\n    left: {first.redacted!r} and {first.profile}\n    → {first.text}")
        spent = steering.preview(str(row["text"]), spans).spent
    print(f"  steered: {right['steer']} of {ASKED} right; with the profile's spans as text: {right['text']}")
    print(f"  the same questions sent the same numbers both times: ε = {spent:g} in all")
    if min(right.values()) < ASKED * 0.6:
        sys.exit("too few are right")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
