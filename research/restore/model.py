"""A causal language model by transformers, on a GPU if there is one, and how its attention heads are read and steered.

The output u_h of head h, before the output projection, becomes u_h + ‖u_h‖·v_h (equation 4 of the paper, its scale
inside v) from the prompt's last token on. The model's own weights stay as they are.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

Head = tuple[int, int]
"""Layer, and head in it."""


class UnsupportedModelError(ValueError):
    """A model whose heads cannot be steered."""


class SteeredModel:
    """A language model whose heads can be steered.

    Args:
        folder: folder, as transformers saves one.
        prompt: template with ``{text}``.
        options: possible answers.

    Raises:
        UnsupportedModelError: the model's attention has no plain ``o_proj``.
        OSError: there is no model.
    """

    def __init__(self, folder: Path, prompt: str, options: Sequence[str]):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._prompt = prompt
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model = model.eval().requires_grad_(False).to("cuda" if torch.cuda.is_available() else "cpu")
        config = model.config.get_text_config()
        self.layers: list[nn.Linear] = [module for name, module in model.named_modules() if name.endswith(".o_proj")]
        self.heads = int(config.num_attention_heads)
        widths = {layer.in_features if type(layer) is nn.Linear else 0 for layer in self.layers}
        if len(self.layers) != config.num_hidden_layers or len(widths) != 1 or widths.pop() % self.heads:
            raise UnsupportedModelError("steering needs one plain o_proj, with heads of one size, in every layer")
        self.head_size = self.layers[0].in_features // self.heads
        self._options = [self._tokenizer.encode(f" {option}", add_special_tokens=False) for option in options]
        if not all(self._options) or len(set(map(tuple, self._options))) < len(options):
            raise UnsupportedModelError("two options are the same to the model's tokenizer")

    @torch.inference_mode()
    def states(self, texts: Sequence[str], batch: int = 64) -> Tensor:
        """Output of each head at each prompt's last token, float32 (N, layers, heads, head size)."""
        states = []
        for start in range(0, len(texts), batch):
            prompts = self._tokens(texts[start : start + batch])
            seen: list[Tensor] = []
            ends = torch.tensor([len(prompt) - 1 for prompt in prompts])

            def keep(_: nn.Module, given: tuple[Tensor], seen: list[Tensor] = seen, ends: Tensor = ends) -> None:
                seen.append(given[0][torch.arange(len(ends)), ends].cpu())

            with ExitStack() as hooks:
                for layer in self.layers:
                    hooks.enter_context(layer.register_forward_pre_hook(keep))
                self._forward(prompts, ends[:, None])
            states.append(_by_head(torch.stack(seen, dim=1), self.heads))
        return torch.cat(states)

    def log_probabilities(
        self,
        texts: Sequence[str],
        vectors: Tensor | None = None,
        heads: Sequence[Head] = (),
        options: Tensor | None = None,
    ) -> Tensor:
        """Log-probabilities of options after each prompt, (N, m).

        Args:
            texts: N texts.
            vectors: v of each text and head, (N, len(heads), head size); None steers nothing.
            heads: heads that the vectors are for.
            options: indices of options, int64 (N, m); None for all of them.
        """
        prompts = self._tokens(texts)
        wanted = torch.arange(len(self._options)).repeat(len(texts), 1) if options is None else options
        if all(len(option) == 1 for option in self._options):
            ends = torch.tensor([len(prompt) - 1 for prompt in prompts])
            with self._steered(vectors, heads, ends):
                logits = self._forward(prompts, ends[:, None])[:, 0]
            return logits.log_softmax(-1).gather(1, torch.tensor([option[0] for option in self._options])[wanted])
        repeats = wanted.shape[1]
        answers = [self._options[at] for at in wanted.flatten().tolist()]
        whole = [prompts[at // repeats] + answer for at, answer in enumerate(answers)]
        ends = torch.tensor([len(tokens) - len(answer) - 1 for tokens, answer in zip(whole, answers, strict=True)])
        with self._steered(None if vectors is None else vectors.repeat_interleave(repeats, 0), heads, ends):
            places = ends[:, None] + torch.arange(max(map(len, answers)))
            said = self._forward(whole, places.clamp(max=max(map(len, whole)) - 1)).log_softmax(-1)
        sums = [said[row, range(len(answer)), answer].sum() for row, answer in enumerate(answers)]
        return torch.stack(sums).view(len(texts), repeats)

    @property
    def option_lengths(self) -> Tensor:
        """Tokens of each option."""
        return torch.tensor([len(option) for option in self._options])

    @torch.inference_mode()
    def choose(
        self, texts: Sequence[str], vectors: Tensor | None = None, heads: Sequence[Head] = (), batch: int = 128
    ) -> Tensor:
        """The most likely option for each text, int64 (N,)."""
        chosen = []
        for start in range(0, len(texts), batch):
            some = None if vectors is None else vectors[start : start + batch]
            chosen.append(self.log_probabilities(texts[start : start + batch], some, heads).argmax(dim=1))
        return torch.cat(chosen)

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Prompts as the model reads them."""
        return self._tokenizer([self._prompt.format(text=text) for text in texts]).input_ids

    def _forward(self, sequences: Sequence[Sequence[int]], places: Tensor) -> Tensor:
        """Logits at some places of each sequence (N, m), on the CPU (N, m, vocabulary): those of all would fill memory.

        Sequences are padded on the right, where it changes nothing before.
        """
        ids = pad_sequence([torch.tensor(tokens) for tokens in sequences], batch_first=True)
        mask = pad_sequence([torch.ones(len(tokens), dtype=torch.long) for tokens in sequences], batch_first=True)
        device, rows = self._model.device, torch.arange(len(ids))[:, None]
        head = self._model.get_output_embeddings()
        with head.register_forward_pre_hook(lambda _, given: (given[0][rows, places],)):
            said = self._model(input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False)
        return said.logits.cpu()

    @contextmanager
    def _steered(self, vectors: Tensor | None, heads: Sequence[Head], ends: Tensor) -> Iterator[None]:
        if vectors is None:
            yield
            return
        with ExitStack() as hooks:
            for layer in sorted({layer for layer, _ in heads}):
                places = [at for at, (other, _) in enumerate(heads) if other == layer]
                table = torch.zeros(len(vectors), self.heads, self.head_size)
                table = table.index_copy(1, torch.tensor([heads[at][1] for at in places]), vectors[:, places])
                hooks.enter_context(self.layers[layer].register_forward_pre_hook(_steer(table, ends)))
            yield


def _by_head(states: Tensor, heads: int) -> Tensor:
    return states.view(*states.shape[:-1], heads, -1)


def _steer(table: Tensor, ends: Tensor) -> Any:
    """A hook that adds each sequence's vectors from its prompt's last token on."""

    def add(_: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        u = _by_head(given[0], table.shape[1])
        here = (torch.arange(u.shape[1]) >= ends[:, None]).to(u.device)
        moved = u + here[:, :, None, None] * u.norm(dim=-1, keepdim=True) * table[:, None].to(u.device)
        return (moved.flatten(-2),)

    return add
