"""A smaller model of the same weights: the first and the last layers of a model, without those between.

    python -m pilotfish.lab.shallow smollm2 15 runs/smollm2-15-layers

It speaks nonsense until it is fine-tuned. SmolLM2-135M has 30 layers; 15 of them are 81 million weights. On rows of the
lab's collaborator the first 8 with the last 7 begin at 8.7 nats a token, the first 15 at 19.7, all 30 at 3.1; after 30
steps of 8 rows they are at 0.9 and 1.6.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from pilotfish.engine.loading import load


def shallow(model: str, layers: int, folder: Path | str) -> int:
    """Write the model's outer layers, its embeddings and its tokenizer as a Hugging Face folder.

    Args:
        model: a hub name, a folder, a `.gguf` file, or `smollm2`.
        layers: how many to keep: half of them, rounded up, from the first on, the others up to the last.
        folder: a new one; it appears whole or not at all.

    Returns:
        Weights of the smaller model.

    Raises:
        ValueError: the model has no more than so many layers, or the folder is there.
        Refused: there is no such model.
    """
    out = Path(folder)
    if out.exists():
        raise ValueError(f"shallow: {out} is there already; remove it, or name a new folder")
    weights, tokenizer = load(model)
    stack: Any = weights.model.layers
    if not 0 < layers < len(stack):
        raise ValueError(f"shallow: {layers} layers of {model}, which has {len(stack)}; keep 1 to {len(stack) - 1}")
    first = -(-layers // 2)
    weights.model.layers = stack[:first] + stack[len(stack) - layers + first :]
    weights.config.num_hidden_layers = layers
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as draft:
        whole = Path(draft) / "whole"
        weights.save_pretrained(whole)
        tokenizer.save_pretrained(whole)
        whole.rename(out)
    return sum(weight.numel() for weight in weights.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pilotfish.lab.shallow", description="Keep a model's outer layers.")
    parser.add_argument("model", help="a hub name, a folder, a .gguf file, or smollm2")
    parser.add_argument("layers", type=int, help="how many to keep")
    parser.add_argument("folder", help="where the smaller model goes")
    args = parser.parse_args()
    try:
        print(f"{shallow(args.model, args.layers, args.folder):,} weights in {args.folder}")
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
