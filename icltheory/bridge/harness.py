"""A language model as a model of lm-evaluation-harness."""

from typing import Any

from icltheory._checks import check_positive_int
from icltheory.bridge.model import LanguageModel

__all__ = ["harness_model"]


def harness_model(
    model: LanguageModel, *, batch_size: int = 32, max_gen_toks: int = 256
) -> Any:
    """Wraps a model as a model object of lm-evaluation-harness.

    The harness reads its task files, makes the prompts and computes the metrics; the
    object answers its requests for log-likelihoods, for those of whole texts and for
    greedy text. Tokens are those of the harness's own class for transformers: a text
    has the special tokens of its tokenizer unless it begins with them, a long context
    loses its beginning, and where nothing stands in front the token of the beginning
    (or, without one, of the end) of a text does.

    Args:
        model: The model, with a tokenizer; also one that is pruned, or on several
            devices.
        batch_size: Most rows that run together.
        max_gen_toks: Most tokens that are generated where a task does not say.

    Returns:
        An ``lm_eval.api.model.LM``.

    Example:
        >>> import lm_eval  # doctest: +SKIP
        >>> from icltheory.bridge import load_checkpoint, prune_model
        >>> model = load_checkpoint("EleutherAI/gpt-j-6b")  # doctest: +SKIP
        >>> pruned = prune_model(model, "26:mlp:0.9")  # doctest: +SKIP
        >>> lm_eval.simple_evaluate(  # doctest: +SKIP
        ...     harness_model(pruned), tasks=["sst2", "wikitext"])

    Source: Biderman et al. (2024), "Lessons from the trenches on reproducible
    evaluation of language models".
    """
    if not isinstance(model, LanguageModel):
        kind = type(model).__name__
        raise TypeError(f"model: expected a LanguageModel, got {kind}")
    check_positive_int("batch_size", batch_size)
    check_positive_int("max_gen_toks", max_gen_toks)
    try:
        from icltheory.bridge._harness import HarnessModel
    except ImportError:
        raise ImportError(
            "lm-evaluation-harness needs `pip install icltheory[lm-eval]`"
        ) from None
    return HarnessModel(model, batch_size, max_gen_toks)
