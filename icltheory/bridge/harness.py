"""A language model as a model of lm-evaluation-harness."""

from collections.abc import Sequence
from typing import Any

from icltheory._checks import check_positive_int, wrong
from icltheory.bridge.evaluation.rows import begun, log_likelihoods, texts_behind
from icltheory.bridge.model import LanguageModel

__all__ = ["harness_model"]


def harness_model(
    model: LanguageModel, *, batch_size: int = 32, max_gen_toks: int = 256
) -> Any:
    """Wraps a model as an ``lm_eval.api.model.LM`` of lm-evaluation-harness.

    The harness reads its task files, makes the prompts and computes the metrics; the
    object answers its requests for log-likelihoods, for those of whole texts and for
    greedy text. Tokens are those of the harness's own class for transformers: a text
    gets the special tokens of its tokenizer unless it begins with them, a long context
    is cut at its beginning, and a text without context follows the token that begins
    a text (or, without one, that ends it).

    Args:
        model: The model, with a tokenizer; it may be pruned or on several devices.
        batch_size: Most rows that run together.
        max_gen_toks: Most tokens that are generated where a task does not say.

    Example:
        >>> import lm_eval  # doctest: +SKIP
        >>> from icltheory.bridge import load_checkpoint, prune_model
        >>> model = load_checkpoint("EleutherAI/gpt-j-6b")  # doctest: +SKIP
        >>> pruned = prune_model(model, "26:mlp:0.9")  # doctest: +SKIP
        >>> lm_eval.simple_evaluate(  # doctest: +SKIP
        ...     harness_model(pruned), tasks=["sst2", "wikitext"])

    Source: Biderman et al. (2024).
    """
    if not isinstance(model, LanguageModel):
        kind = type(model).__name__
        raise TypeError(f"model: expected a LanguageModel, got {kind}")
    check_positive_int("batch_size", batch_size)
    check_positive_int("max_gen_toks", max_gen_toks)
    try:
        from lm_eval.api.model import TemplateLM
    except ImportError:
        said = "lm-evaluation-harness needs `pip install icltheory[lm-eval]`"
        raise ImportError(said) from None

    class HarnessModel(_Answers, TemplateLM):
        """A language model as a model of lm-evaluation-harness."""

    return HarnessModel(model, batch_size, max_gen_toks)


class _Answers:
    """Methods of ``TemplateLM`` of the harness, which only the extra installs."""

    def __init__(self, model: LanguageModel, batch_size: int, max_gen_toks: int):
        super().__init__()
        self.model, self.batch_size, self.max_gen_toks = model, batch_size, max_gen_toks

    @property
    def eot_token_id(self) -> int:
        """Token that ends a text, or the one that begins a text if there is none."""
        tokenizer = self.model.tokenizer
        for number in (tokenizer.eos_id, tokenizer.bos_id):
            if number is not None:
                return number
        wanted = "a token that ends or begins a text"
        raise ValueError(f"tokenizer: expected {wanted}, got neither")

    @property
    def prefix_token_id(self) -> int:
        """Token that precedes a text without context."""
        begin = self.model.tokenizer.bos_id
        return self.eot_token_id if begin is None else begin

    @property
    def max_length(self) -> int:
        """Longest sequence that the model supports."""
        return self.model.context_length

    @property
    def tokenizer_name(self) -> str:
        """Name under which the harness caches encoded texts."""
        return self.model.source.replace("/", "__")

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Encodes a text, with special tokens unless it already has them."""
        tokenizer = self.model.tokenizer
        special = add_special_tokens is not False
        ids = [int(i) for i in tokenizer.encode(string, special)]
        begin = tokenizer.bos_id
        if add_special_tokens is None and begin is not None and ids[:2] == [begin] * 2:
            return ids[1:]  # the text contains its own
        return ids

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        rows, starts = [], []
        for _, context, continuation in requests:
            row = [*context, *continuation][-(self.max_length + 1) :]
            rows.append(row)
            starts.append(len(row) - len(continuation))
        if not rows:
            return []
        found = log_likelihoods(self.model, rows, starts, batch_size=self.batch_size)
        return [
            (float(total), bool(greedy))
            for total, greedy in zip(found.log_likelihood, found.greedy, strict=True)
        ]

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-likelihoods of whole texts, by windows with minimal overlap."""
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        windows, owners = [], []
        for number, request in enumerate(requests):
            rolled = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            for context, continuation in map(make_disjoint_window, rolled):
                windows.append((("", ""), context, continuation))
                owners.append(number)
        totals = [0.0] * len(requests)
        found = self._loglikelihood_tokens(windows)
        for number, (total, _) in zip(owners, found, strict=True):
            totals[number] += total
        return totals

    def generate_until(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[str]:
        """Generates greedy continuations, each up to the first of the stop strings."""
        groups: dict[tuple, list[int]] = {}
        for number, request in enumerate(requests):
            wanted = _wanted(request.args[1], self.max_gen_toks)
            groups.setdefault(wanted, []).append(number)
        written = [""] * len(requests)
        for (until, most), numbers in groups.items():
            for first in range(0, len(numbers), self.batch_size):
                some = numbers[first : first + self.batch_size]
                texts = [requests[i].args[0] for i in some]
                new = self._written(texts, until, most)
                for i, text in zip(some, new, strict=True):
                    written[i] = text
        return written

    def _written(
        self, texts: Sequence[str], until: Sequence[str], most: int
    ) -> list[str]:
        limit = self.max_length - most
        if limit < 1:
            wanted = f"less than the context's {self.max_length} tokens"
            raise wrong("max_gen_toks", wanted, most)
        tokenizer = self.model.tokenizer
        prompts = [begun(tokenizer, self.tok_encode(text)[-limit:]) for text in texts]

        # The new text is decoded without its prompt, as the harness does for
        # transformers.
        def decoded(number, tokens):
            return tokenizer.decode(tokens)

        return texts_behind(self.model, prompts, most, until, decoded)


def _wanted(options: dict[str, Any], most: int) -> tuple[tuple[str, ...], int]:
    """Returns stop strings and token limit; raises unless generation is greedy."""
    temperature = options.get("temperature") or 0
    if temperature > 0 or options.get("num_beams", 1) != 1:
        got = dict(options)
        raise ValueError(f"generation: expected a task that is greedy, got {got}")
    until = options.get("until") or ()
    until = (until,) if isinstance(until, str) else tuple(until)
    return until, int(options.get("max_gen_toks") or most)
