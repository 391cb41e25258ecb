"""The Ray Serve application: an HTTP ingress, the embedder and the engine, each scaling by itself.

The engine that compares sentences runs in the embedder's replica. Private work starts when there is some.

``service.serving.application:build`` is what a Serve config's ``import_path`` names, here and on KubeRay. Serve passes
the config's ``args`` as plain values and accepts unknown ones silently, so they are checked here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pydantic import ConfigDict, Field
from ray import serve
from ray.serve import Application
from ray.serve.handle import DeploymentHandle
from typing_extensions import override

from accounting.ledger.errors import LedgerError
from accounting.plans.described import Described
from exemplar_store import ExemplarStoreError, PackedSlots
from service.answering.turns import Turns
from service.engines.configs import EngineConfig, NearestExemplarConfig, OpenAiCompatibleConfig, VllmConfig
from service.engines.embedding.embedder import Embedder
from service.engines.errors import EngineUnavailableError
from service.engines.factory import open_engine
from service.engines.passing_on import METHODS, Method, PassesOn
from service.engines.private_threads import privately
from service.engines.protocol import Engine, EngineInfo
from service.records.telemetry.logs import configure_logs
from service.serving.departure import work_in_hand
from service.serving.deployments import call, calling, deployment, or_refusal
from service.serving.local_ray import begin_replica, require_whole_messages
from service.serving.pauses import shorten_pauses
from service.serving.restore_engine import RemoteSteerer, RestoreEngine

if TYPE_CHECKING:  # a second to import, in each replica; only the ingress needs them
    from fastapi import FastAPI

    from accounting.plans.plan import CalibratedPlan
    from service.answering.latency import Measured
    from service.operations.services import Services
    from service.records.apart import Apart


class ApplicationArgs(Described):
    """The ``args`` of a Serve config. Secrets and the database are not among them: they come from the environment."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    engine: EngineConfig = NearestExemplarConfig()
    embedder_threads: int = Field(default=1, ge=1)
    """Threads of each embedder replica."""
    restore: VllmConfig | None = None
    """The language model that bundles steer, in a deployment of its own, ``RestoreEngine``."""


class AnswersSlots:
    """A deployment's replica with an engine."""

    _engine: Engine

    async def ask(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a method of the engine. One call carries all slots of a query.

        Returns:
            What it returns; or its refusal. None if a method fails that sees exemplars. Serve would log what is raised,
            with its traceback, which may quote them.
        """
        method = METHODS[name]
        if (slots := method.slots) is not None:
            try:
                with work_in_hand().piece():
                    return await method.ask(self._engine, {**arguments, slots: arguments[slots].slots()})
            except Exception:
                return None
        if name == "room" and (replicas := serve.get_replica_context().world_size) > 1:
            # A replica does not know what others set aside.
            what = "blocks are not kept by" if arguments["blocks"] else "slots do not write together on"
            return f"{what} {replicas} engine replicas: run one, on more or larger GPUs"
        return await or_refusal(method.ask(self._engine, arguments))


@deployment
class EmbedderDeployment(AnswersSlots):
    """Sentence embeddings, and the engine that compares them."""

    def __init__(self, threads: int):
        configure_logs()
        begin_replica()
        self._embedder = Embedder(threads=threads)
        self._engine = open_engine(NearestExemplarConfig(), self._embedder)
        self._answered = False  # since Serve last asked how it does
        shorten_pauses()

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Unit-norm float32 embeddings of shape (n, d)."""
        embeddings = await asyncio.to_thread(self._embedder.embed, texts)
        self._answered = True
        return embeddings

    async def embed_many(self, texts: Sequence[str]) -> np.ndarray:
        """See :class:`service.engines.embedding.embedder.TextEmbedder`; of an upload."""
        embeddings = await asyncio.to_thread(self._embedder.embed_many, texts)
        self._answered = True
        return embeddings

    async def embed_bounded(self, texts: Sequence[str | None]) -> np.ndarray:
        """Embeddings, by work that depends on the number of texts only."""
        embeddings = await privately(lambda: self._embedder.embed_bounded(texts))
        self._answered = True
        return embeddings

    async def alive(self) -> None:
        """Return at once, whatever is being embedded."""

    async def check_health(self) -> None:
        """Serve restarts a replica whose model no longer answers. A busy one is not asked: that would wait in line."""
        if not self._answered:
            await self.embed(["health"])
        self._answered = False


class RemoteEmbedder:
    """The embedder deployment as a blocking function, for worker threads."""

    def __init__(self, handle: DeploymentHandle[Any]):
        self._handle = handle

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Unit-norm float32 embeddings of shape (n, d).

        Raises:
            EngineUnavailableError: the deployment does not answer.
        """
        with calling("embedder"):
            return self._handle.embed.remote(list(texts)).result()

    def embed_many(self, texts: Sequence[str]) -> np.ndarray:
        """See :class:`service.engines.embedding.embedder.TextEmbedder`.

        Raises:
            EngineUnavailableError: the deployment does not answer.
        """
        with calling("embedder"):
            return self._handle.embed_many.remote(list(texts)).result()

    def embed_bounded(self, texts: Sequence[str | None]) -> np.ndarray:
        """See :class:`service.engines.embedding.embedder.TextEmbedder`.

        Raises:
            EngineUnavailableError: the deployment does not answer.
        """
        with calling("embedder"):
            return self._handle.embed_bounded.remote(list(texts)).result()


@deployment
class EngineDeployment(AnswersSlots):
    """A language model, here or at an endpoint."""

    def __init__(self, config: EngineConfig, embedder: DeploymentHandle[Any]):
        configure_logs()
        begin_replica()
        self._engine = open_engine(config, RemoteEmbedder(embedder))
        shorten_pauses()

    async def check_health(self) -> None:
        """Serve replaces a replica whose model has died; a new one would not mend a remote one."""
        if not (await self._engine.describe()).remote:
            await self._engine.health()

    def __del__(self) -> None:
        """Called by Serve when the replica stops, and by Python when the constructor failed."""
        if hasattr(self, "_engine"):
            self._engine.close()


@deployment
class TurnsDeployment:
    """Turns to ask the engine (:class:`service.answering.turns.Turns`), for all processes that do.

    It has one replica: two would not know of each other's turns.
    """

    def __init__(self) -> None:
        configure_logs()
        begin_replica()
        self._turns = Turns()

    async def begin(self, about_s: float, most_s: float) -> int:
        """Wait for a turn: its number."""
        return await self._turns.begin(about_s, most_s)

    async def end(self, number: int, after_s: float) -> None:
        """End a turn after some seconds."""
        await self._turns.end(number, after_s)

    async def wait_s(self) -> float:
        """Seconds that one would wait now."""
        return await self._turns.wait_s()


class RemoteTurns(Turns):
    """The deployment :class:`TurnsDeployment` as :class:`service.answering.turns.Turns`.

    All raise EngineUnavailableError if it does not answer.
    """

    def __init__(self, handle: DeploymentHandle[Any]):
        super().__init__()
        self._handle = handle

    @override
    async def begin(self, about_s: float, most_s: float) -> int:
        return cast(int, await self._ask("begin", about_s, most_s))

    @override
    async def end(self, number: int, after_s: float = 0.0) -> None:
        await self._ask("end", number, after_s)

    @override
    async def wait_s(self) -> float:
        return cast(float, await self._ask("wait_s"))

    async def _ask(self, method: str, *args: float) -> Any:
        return await call("deployment for turns", self._handle, method, *args)


_IN_WORDS = {"write": "write an answer", "keep": "read exemplars ahead"}
"""Methods, for errors."""


class RemoteEngine(PassesOn):
    """The engine deployment as a :class:`service.engines.protocol.Engine`; healthy while the embedder is, too."""

    def __init__(self, handle: DeploymentHandle[Any], embedder: DeploymentHandle[Any]):
        self._handle = handle
        self._embedder = embedder
        self._info: EngineInfo | None = None

    async def pass_on(self, method: Method, arguments: Mapping[str, Any]) -> Any:
        """Ask the deployment."""
        if (slots := method.slots) is None:
            return await self._ask(method, arguments)
        packed = await privately(lambda: PackedSlots.of(arguments[slots]))
        answer = await self._ask(method, {**arguments, slots: packed})
        if answer is not None:
            return answer
        if method.name == "contributions":
            return []  # the pipeline asks slot by slot
        raise EngineUnavailableError(f"the engine could not {_IN_WORDS.get(method.name, method.name)}")

    async def describe(self) -> EngineInfo:
        """The engine as it runs; all replicas run the same."""
        if self._info is None:
            self._info = await super().describe()
        return self._info

    async def health(self) -> None:
        """Return when both deployments answer."""
        await asyncio.gather(super().health(), call("embedder", self._embedder, "alive"))

    def close(self) -> None:
        """Serve stops the deployment."""

    async def _ask(self, method: Method, arguments: Mapping[str, Any]) -> Any:
        return await call("engine deployment", self._handle, "ask", method.name, arguments)


@dataclass(frozen=True)
class Beside:
    """The deployments that a process with the records works with.

    Attributes:
        config: the engine's.
        engine: engine that answers.
        embedder: sentence embeddings.
        local: then answers slots instead of the engine.
        turns: turns to ask the engine.
    """

    config: EngineConfig
    engine: DeploymentHandle[Any]
    embedder: DeploymentHandle[Any]
    local: DeploymentHandle[Any] | None
    turns: DeploymentHandle[Any]


def _open(beside: Beside, *, restore: DeploymentHandle[Any] | None = None, apart: Apart | None = None) -> Services:
    """The records that the environment names, beside the other deployments."""
    from service.operations.services import open_services
    from service.records.records import open_records
    from service.settings import Settings

    configure_logs()
    begin_replica()
    require_whole_messages()
    return open_services(
        open_records(Settings()),
        RemoteEngine(beside.engine, beside.embedder),
        RemoteEmbedder(beside.embedder),
        sanitize=getattr(beside.config, "sanitize", None),
        local=None if beside.local is None else RemoteEngine(beside.local, beside.embedder),
        realign=getattr(beside.config, "realign", None),
        steerer=None if restore is None else RemoteSteerer(restore),
        apart=apart,
        turns=RemoteTurns(beside.turns),
    )


@deployment
class PrivateWork:
    """Reads whole knowledge bases, for one-time releases and to find the topic of every unit.

    No request waits for this process's interpreter, so none shows how long that takes. A failure is returned without
    its reason if that may depend on what was read: Serve would log a raised one with its traceback.
    """

    def __init__(self, beside: Beside):
        self._services = _open(beside)

    async def make(self, task: str) -> str | None:
        """Make a task's one release; why it is not made, if it is not."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with work_in_hand().piece():
                await privately(lambda: self._services.make(task))
        except (LedgerError, ExemplarStoreError, SQLAlchemyError) as refusal:
            return str(refusal)
        except Exception:
            return "making it failed"
        return None

    async def find_topics(self, calibrated: CalibratedPlan) -> Mapping[str, np.ndarray] | str:
        """The topic of every unit in a plan that is to be signed; why they are not found, if they are not."""
        from service.answering.plans.signing import find_topics

        try:
            with work_in_hand().piece():
                return await privately(lambda: find_topics(self._services.records, calibrated))
        except ExemplarStoreError as refusal:
            return str(refusal)
        except Exception:
            return "finding the units' topics failed"


class RemotePrivateWork:
    """The deployment :class:`PrivateWork` as :class:`service.records.apart.Apart`."""

    def __init__(self, handle: DeploymentHandle[Any]):
        self._handle = handle

    def make(self, task: str) -> None:
        """Make a task's one release. Blocks.

        Raises:
            service.answering.once.making.NotMadeError: it is not made, or the deployment does not answer.
        """
        from service.answering.once.making import NotMadeError

        try:
            with calling("deployment for private work"):
                problem: str | None = self._handle.make.remote(task).result()
        except EngineUnavailableError as error:
            problem = str(error)
        if problem is not None:
            raise NotMadeError(problem)

    def find_topics(self, calibrated: CalibratedPlan) -> Mapping[str, np.ndarray]:
        """Find the topic of every unit. Blocks.

        Raises:
            EngineUnavailableError: they are not found, or the deployment does not answer.
        """
        with calling("deployment for private work"):
            found: Mapping[str, np.ndarray] | str = self._handle.find_topics.remote(calibrated).result()
        if isinstance(found, str):
            raise EngineUnavailableError(f"{found}; nothing is signed")
        return found


_OTHER_PLACES = 32
"""Requests an ingress replica works on besides questions in flight."""


@deployment
@serve.ingress()
class Ingress:
    """HTTP, the query pipeline and the database pool."""

    def __init__(self, beside: Beside, work: DeploymentHandle[Any], restore: DeploymentHandle[Any] | None):
        from service.serving.doors import NodesDoors

        self._services = _open(beside, restore=restore, apart=RemotePrivateWork(work))
        places = self._services.records.settings.max_queries_in_flight + _OTHER_PLACES
        self._doors = NodesDoors(places, work_in_hand())

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve after the constructor."""
        from service.serving.web import create_app

        app = create_app(self._services, proxy_answers_name=True, doors=self._doors)
        shorten_pauses()
        return app

    async def latencies(self) -> Sequence[Measured]:
        """Every task's latency grain, and what was measured to choose or check it."""
        await asyncio.to_thread(self._services.sanitizers.wait)
        return await self._services.grains.all()

    async def drain(self) -> None:
        """Before Serve stops its deployments, all at once: refuse new requests, finish all that is charged."""
        await self._doors.close()
        await self._services.answering.drain()


def build(args: dict[str, Any]) -> Application:
    """Build the application from a Serve config's ``args``.

    Raises:
        pydantic.ValidationError: unknown or ill-typed args.
    """

    def small(deployed: Any) -> Any:
        """Let it run where Ray counts few cores, unless the config has other options."""
        return deployed.options(ray_actor_options={"num_cpus": 0.2})

    # Ray's decorator is not typed for classes, hence the ignored attributes.
    checked = ApplicationArgs.model_validate(args)
    embedder = EmbedderDeployment.bind(checked.embedder_threads)  # type: ignore[attr-defined]
    compares = isinstance(checked.engine, NearestExemplarConfig)
    engine = embedder if compares else small(EngineDeployment).bind(checked.engine, embedder)
    local = restore = None
    if isinstance(checked.engine, OpenAiCompatibleConfig) and checked.engine.exemplars == "local":
        local = embedder
    if checked.restore is not None:
        restore = small(RestoreEngine).bind(checked.restore)
    turns = TurnsDeployment.bind()  # type: ignore[attr-defined]
    others = Beside(checked.engine, engine, embedder, local, turns)  # Serve puts handles where applications are
    # Serve stops it after ten minutes without any.
    work = PrivateWork.options(autoscaling_config={"min_replicas": 0, "max_replicas": 1}).bind(others)  # type: ignore[attr-defined]
    return Ingress.bind(others, work, restore)  # type: ignore[attr-defined]
