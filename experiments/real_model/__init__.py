"""A language model that people use: SmolLM2-135M-Instruct."""
