"""PrivacyRestore from an empty folder: a made-up clinic, a model that knows it, a bundle, a service, and questions.

Run it with `make restore-demo`: some minutes on two cores, most of them for the little language model. Models and jobs
stay in var/restore; what is done there is not done again.
"""

from __future__ import annotations

import base64
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from examples.demo import DPICL, dpicl, free_port, say, wait_until_ready
from examples.restore.world import PROMPT, World, train_model, write
from sanitization.restore.client import RestoreClient

FOLDER = Path(__file__).parents[2] / "var" / "restore"
EPSILON = 6.0
ASKED = 40


def main(folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    world = World()
    say("A made-up clinic: what patients report is private, and all but decides their illness")
    test = world.patients(4000, 9)
    for what, redacted in (("whole", False), ("redacted", True)):
        print(f"  the best possible guess from {what} texts: {world.best_guesses(test, redacted=redacted):.1%}")
    model = folder / "model"
    if not (model / "model.safetensors").exists():
        say("A small language model learns to tell illnesses from texts")
        train_model(model, world.patients(5000, 1))

    say("Restoration vectors, a book of profiles, and a report with controls")
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
    os.environ["DPICL_DATABASE_URL"] = f"sqlite:///{folder}/demo.sqlite"
    os.environ["DPICL_ENCRYPTION_KEY"] = base64.b64encode(secrets.token_bytes(32)).decode()
    os.environ["DPICL_RESTORE_BUNDLES"] = str(folder / "bundles")
    os.environ["DPICL_LATENCY_GRAIN_MS"] = "5000"  # of answers from knowledge bases, of which there are none here
    say("The bundle is signed and published; that is refused unless profiles beat their controls")
    key_file = folder / "key.pem"
    key_file.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    dpicl("restore", "publish", str(job), "--signing-key", str(key_file))

    key = dpicl("keys", "create", "demo", "--role", "analyst", show=False).strip()
    url = f"http://127.0.0.1:{free_port()}"
    say(f"The service on Ray Serve and vLLM, at {url}")
    log = folder / "serve.log"
    command = [DPICL, "serve", "--port", url.rpartition(":")[2], "--model", str(model)]
    with log.open("wb") as sink:
        server = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300) as client:
            wait_until_ready(client, server, log, timeout_s=900)
        ask(url, key, folder / "ledger.sqlite", world)
    finally:
        server.send_signal(signal.SIGINT)
        status = server.wait(timeout=60)
    say(f"Stopped cleanly (exit status {status})")
    if status != 0:
        sys.exit(status)


def ask(url: str, key: str, ledger: Path, world: World) -> None:
    say(f"{ASKED} new patients ask with ε = {EPSILON:g}: the redacted text and one random number leave")
    right = 0
    with RestoreClient(
        url, key, bundle="clinic@1", epsilon=EPSILON, ledger=ledger, budget=EPSILON * ASKED, mode="text"
    ) as client:
        for number, row in enumerate(world.patients(ASKED, 10)):
            answer = client.ask(str(row["text"]), row["spans"])  # type: ignore[arg-type]
            right += answer.text == row["answer"]
            if number < 5:
                print(f"  {row['text']}\n    left: {answer.redacted!r}, {answer.profile}\n    → {answer.text}")
        print(f"  {right} of {ASKED} right")
        again = client.ask(str(row["text"]), row["spans"])  # type: ignore[arg-type]
        if (again.text, again.profile) != (answer.text, answer.profile):
            sys.exit("a repeated question sent another number")
        print("  asked again, the last one sent the same number, and cost nothing")
    if right < ASKED * 0.6:
        sys.exit("too few are right")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
