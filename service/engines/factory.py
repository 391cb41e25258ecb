"""From an engine's configuration to the engine, started."""

from service.embedding.embedder import TextEmbedder
from service.engines.configs import NearestExemplarConfig, OpenAiCompatibleConfig, VllmConfig
from service.engines.protocol import Engine


def open_engine(config: NearestExemplarConfig | VllmConfig | OpenAiCompatibleConfig, embedder: TextEmbedder) -> Engine:
    """Start the configured engine; may take minutes.

    Args:
        config: which, and how.
        embedder: for engines that compare sentences.

    Raises:
        service.engines.protocol.EngineUnavailableError: it cannot start here; says why and what to change.
    """
    # Each imports what only it needs.
    match config:
        case NearestExemplarConfig():
            from service.engines.embedded.nearest_exemplar import NearestExemplarEngine

            return NearestExemplarEngine(embedder)
        case VllmConfig():
            from service.engines.vllm.isolation import isolate
            from service.engines.vllm.model_folder import model_folder

            model = model_folder(config.model, exact=config.dtype != "auto")
            config = config.model_copy(update={"model": model})
            isolation = isolate(config)  # first: vLLM reads the environment when it is imported
            from service.engines.vllm.engine import VllmEngine

            return VllmEngine(config, isolation)
        case OpenAiCompatibleConfig():
            from service.engines.remote.engine import OpenAiCompatibleEngine

            return OpenAiCompatibleEngine(config)
