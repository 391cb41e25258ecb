"""``dpicl serve``: the service on Ray Serve, on this machine."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.answering.latency import Measured
from service.cli.output import progress
from service.records.database import parse_url, require_kept
from service.records.records import open_records
from service.records.synthetic_store import KEY_BASE64, NOTICE
from service.records.telemetry.logs import configure_logs, relay, relay_logging
from service.records.witness import check_witness, witness_url
from service.serving import local_ray, ray_private
from service.serving.synthetic.setup import PLANS, QUESTIONS, SMALL_PLANS, Synthetic, synthetic_database
from service.settings import ListenSettings, Settings

if TYPE_CHECKING:
    from ray.serve.schema import ServeDeploySchema

DEFAULT_CONFIG = Path(local_ray.__file__).with_name("serve.yaml")
_DRAIN_WITHIN_S = 300  # as Ingress' graceful_shutdown_timeout_s: a query may wait for the engine four times
_LOOK_EVERY_S = 1.0
_ASK_EVERY_S = 0.5
_LAST_BYTES_S = 0.5  # Serve's proxy passes them on
_LOOK_AGAIN_S = 0.1  # Serve, which stops a replica once nothing is asked, looks after 2 s if left alone
_HOW_TO_ASK = """
{notice}
It is gone when you stop this. To ask, in another terminal:

  export DPICL_URL={url} DPICL_API_KEY={analyst}
  dpicl ask support.team "{questions[0]}"

  curl "$DPICL_URL/v1/tasks/support.team/answers" --header "Authorization: Bearer $DPICL_API_KEY" \\
    --header "Content-Type: application/json" --data '{{"query": "{questions[1]}"}}'

  python - <<'END'
  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="{analyst}")
  messages = [{{"role": "user", "content": "{questions[2]}"}}]
  print(client.chat.completions.create(model="support.team", messages=messages).choices[0].message.content)
  END

The budget, and what is left of it:  dpicl budget
The right answers:                   {teams} (noise rarely gives others)
The dashboard:                       {url}/admin/
  where you sign in with this key:   {admin}
Other admin commands (dpicl plan preview, dpicl keys list, ...) need the database and its published key:

  export DPICL_DATABASE_URL={database} DPICL_WITNESS_URL={witness} DPICL_ENCRYPTION_KEY='{key}'
"""


def serve(
    config: Annotated[Path, typer.Option(dir_okay=False, show_default="ours")] = DEFAULT_CONFIG,
    host: str | None = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535)] = None,
    model: str | None = None,
    synthetic: Annotated[bool, typer.Option("--synthetic")] = False,
) -> None:
    """Run the service until Ctrl-C or SIGTERM; it then finishes its requests, unless it gets a second signal.

    Needs an encryption key in DPICL_ENCRYPTION_KEY (make one with `openssl rand -base64 32`), or DPICL_DEVELOPMENT=true
    for a trial on made-up data. The database is DPICL_DATABASE_URL, by default a SQLite file in var/. With --synthetic
    it needs and touches neither: it fills a temporary database with made-up support tickets, signs plans for them, and
    removes everything at the end.

    Args:
        config: A Ray Serve config, as for `serve run` and KubeRay.
        host: Address to listen on, instead of DPICL_HOST's or the config's.
        port: Port, instead of DPICL_PORT's or the config's.
        model: Use vLLM, not the config's engine: smollm2, a folder, a GGUF file or a Hugging Face id.
        synthetic: Run on made-up tickets in a temporary database, with keys to paste.
    """
    # Before Ray is imported, which happens here: the other commands do without it.
    for name, value in local_ray.SETTINGS.items():
        os.environ.setdefault(name, value)
    if "RAY_ADDRESS" not in os.environ:
        local_ray.close()
    from service.gateway.telemetry.tracing import check_tracing
    from service.serving.serve_config import load_serve_config

    check_tracing()
    schema = load_serve_config(config)
    listen = ListenSettings()
    if host := host or listen.host:
        schema.http_options.host = host.removeprefix("[").removesuffix("]")
    if port := port or listen.port:
        schema.http_options.port = port
    if model:
        for application in schema.applications:
            application.args = {**application.args, "engine": {"name": "vllm", "model": model}}
    with ExitStack() as stack:
        if "RAY_ADDRESS" not in os.environ:
            local_ray.require_room()
            stack.enter_context(local_ray.claimed(schema.http_options.host, schema.http_options.port))
            _require_engines(schema)
        elif synthetic:
            raise ValueError("--synthetic keeps its database on this machine and starts Ray here: unset RAY_ADDRESS")
        if not synthetic:
            _run(schema)
            return
        data = stack.enter_context(_made_up_data(language_model=model is not None))
        _run(schema, lambda: print_how_to_ask(data, _address(schema)))


def _address(schema: ServeDeploySchema) -> str:
    host, port = schema.http_options.host, schema.http_options.port
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _require_engines(schema: ServeDeploySchema) -> None:
    """Look for what the engines need, before minutes go into starting them.

    Raises:
        service.engines.factory.NotHereError: something is missing.
    """
    from service.engines.factory import require_here
    from service.serving.application import ApplicationArgs

    for application in schema.applications:
        arguments = ApplicationArgs.model_validate(application.args)
        for config in (arguments.engine, arguments.restore):
            if config is not None:
                require_here(config)


@contextmanager
def _made_up_data(*, language_model: bool) -> Iterator[Synthetic]:
    """A temporary database of made-up tickets, which the environment names until the block ends."""
    from service.engines.embedding.embedder import Embedder, cores

    configure_logs()
    typer.echo(NOTICE)
    plans = SMALL_PLANS if language_model else PLANS
    with ExitStack() as stack:
        with progress() as bar:
            task = bar.add_task("Reading made-up tickets, and signing plans for them", total=None)
            told = lambda done, total: bar.update(task, completed=done, total=total)  # noqa: E731
            data = stack.enter_context(synthetic_database(Embedder(threads=cores()).embed_many, told, plans))
        yield data


def print_how_to_ask(data: Synthetic, url: str) -> None:
    """Print commands for a newcomer to paste."""
    typer.echo(
        _HOW_TO_ASK.format(
            notice=NOTICE,
            url=url,
            analyst=data.analyst_token,
            admin=data.admin_token,
            database=data.database_url,
            witness=witness_url(Settings()),
            key=KEY_BASE64,
            questions=tuple(QUESTIONS),
            teams=", ".join(QUESTIONS.values()),
        )
    )


def _run(schema: ServeDeploySchema, when_running: Callable[[], None] = lambda: None) -> None:
    """Serve on the database that the environment names, until a signal."""
    import ray
    from ray import serve as ray_serve

    from service.operations.services import check_sanitizers
    from service.serving.application import ApplicationArgs

    configure_logs()
    require_kept(Settings().database_url)
    opened = open_records(Settings())  # reports what is wrong with key or database before Ray starts
    check_witness(opened.settings)
    if opened.settings.oidc_issuer is not None:
        from service.gateway.dashboard.app import open_provider

        open_provider(opened.settings)
    for application in schema.applications:
        for deployment in application.deployments:
            deployment.graceful_shutdown_wait_loop_s = _LOOK_AGAIN_S
        arguments = ApplicationArgs.model_validate(application.args)
        check_sanitizers(opened.settings, getattr(arguments.engine, "sanitize", None))
    opened.database.dispose()
    _pin_sqlite_path("DPICL_DATABASE_URL", opened.settings.database_url)
    if (witness := witness_url(opened.settings)) is not None:
        _pin_sqlite_path("DPICL_WITNESS_URL", witness)
    for setting in ("restore_bundles", "public_texts"):
        if (path := getattr(opened.settings, setting)) is not None:
            os.environ[f"DPICL_{setting.upper()}"] = str(path.resolve())

    if "RAY_ADDRESS" in os.environ:  # the operator brings a cluster
        ray.init(namespace="serve", logging_level=logging.WARNING)
    else:
        typer.echo("Starting Ray")
        try:
            local_ray.start()
        except (KeyboardInterrupt, SystemExit) as stopped:
            if isinstance(stopped, SystemExit) and stopped.code != signal.SIGTERM:  # as Ray takes that signal
                raise
            typer.echo("Stopping")
            ray.shutdown()
            return
    if not sys.stderr.isatty():  # a program reads lines of JSON; a person reads them with Ray's names before them
        relay_logging()
        ray_private.relay_lines(relay)
    stop, hurry, ending = threading.Event(), threading.Event(), threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):  # after ray.init, which sets handlers of its own
        signal.signal(name, lambda *_: (hurry if stop.is_set() else stop).set())
    if "RAY_ADDRESS" not in os.environ:
        threading.Thread(target=_abandon_dead_ray, args=(ending,), daemon=True).start()
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    try:
        typer.echo("Starting the service: its engine and embedder are loaded, and its latency is measured")
        ray_private.deploy(schema)
        names = [app.name for app in schema.applications]
        if up := _wait_until_running(names, stop):
            for served in names:
                _print_latencies(served)
            typer.echo(f"Serving on {_address(schema)} (Ctrl-C stops)")
            when_running()
            stop.wait()
        typer.echo("Stopping")
        if up:
            _drain(names, hurry)
    finally:
        ending.set()
        ray_private.hush_errors()
        ray_serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()


def _print_latencies(application: str) -> None:
    """Print every task's latency grain, or why the task is refused while the others are answered.

    Raises:
        ValueError: the grain that the operator chose is too small for every task.
    """
    from ray import serve as ray_serve

    measured: Sequence[Measured] = ray_serve.get_app_handle(application).latencies.remote().result()
    problems = [latency.problem for latency in measured if latency.problem]
    if problems and len(problems) == len(measured) and Settings().latency_grain_ms is not None:
        raise ValueError("; ".join(problems))
    for problem in problems:
        typer.echo(f"Not answered, with status 503: {problem}. Or retire its plan with `dpicl plan retire`", err=True)
    for latency in (one for one in measured if not one.problem):
        took, grain = 1000 * latency.work_s, 1000 * latency.grain_s
        typical = f"typical slots take {1000 * latency.typical_s:.0f} ms, " if latency.typical_s else ""
        typer.echo(
            f"{latency.task}: answers leave after {grain:.0f} ms or multiples; {typical}the largest {took:.0f} ms"
        )
        if latency.repeats is not None:
            share = 100 * latency.repeats
            typer.echo(f"{latency.task}: beside public texts the model repeats the label shown last in {share:.0f} %")
        if latency.cold:
            typer.echo(f"{latency.task}: blocks are not read ahead, so answers take longer: {latency.cold}")


def _abandon_dead_ray(ending: threading.Event) -> None:
    """End the service if Ray has died. Without its raylet Ray never answers or exits, without its GCS in a minute."""
    while not ending.wait(_LOOK_EVERY_S):
        if (died := local_ray.died()) and not ending.is_set():
            typer.echo(f"Ray's {died} has died, which ends the service: start it again", err=True)
            local_ray.abandon()


def _drain(names: list[str], hurry: threading.Event) -> None:
    """Let every ingress replica finish what it was asked. Serve itself would stop the engine at the same time."""
    from ray import serve as ray_serve
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    def ask_all() -> None:
        with suppress(RayError, RayServeException, TimeoutError):  # a replica that has died has nothing to finish
            for drained in [ray_serve.get_app_handle(name).broadcast("drain") for name in names]:
                drained.results(timeout_s=_DRAIN_WITHIN_S)

    asking = threading.Thread(target=ask_all, daemon=True)
    asking.start()
    while asking.is_alive() and not hurry.wait(0.1):
        pass
    hurry.wait(_LAST_BYTES_S)


def _wait_until_running(names: list[str], stop: threading.Event) -> bool:
    """Wait for the applications; returns whether they run (False: the service was asked to stop meanwhile).

    Raises:
        ValueError: an application cannot start; the message has the reason.
    """
    while not stop.wait(_ASK_EVERY_S):
        statuses = ray_private.statuses()
        states = {name: statuses[name].app_status for name in names if name in statuses}
        for name, state in states.items():
            if state.status in ("DEPLOY_FAILED", "UNHEALTHY"):
                reasons = [d.message for d in statuses[name].deployment_statuses if d.message] or [state.message]
                raise ValueError(f"{name} did not start: {reasons[0].strip().splitlines()[-1]} (see above)")
        if len(states) == len(names) and all(state.status == "RUNNING" for state in states.values()):
            return True
    return False


def _pin_sqlite_path(variable: str, database_url: str) -> None:
    """Put a SQLite file's absolute path into the environment: replicas may run in another folder."""
    url = parse_url(database_url, variable)
    if url.get_backend_name() == "sqlite" and url.database:
        absolute = url.set(database=str(Path(url.database).resolve()))
        os.environ[variable] = absolute.render_as_string(hide_password=False)
