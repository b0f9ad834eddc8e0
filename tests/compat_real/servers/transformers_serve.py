"""`transformers serve` with a tiny random model, made on the spot: `transformers_serve.py PORT FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WIDTH = 64
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = [f"Ġ{first}{vowel}{last}" for first in "bdklmnrst" for vowel in "aeiou" for last in "lmnrst"]
TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"


def make_model(path: Path) -> None:
    """Write a model that chooses words at random, and ends after some twenty of them, seldom at once."""
    tokens = [*SPECIAL, *BYTES, *WORDS]
    spelling = Tokenizer(models.BPE({token: place for place, token in enumerate(tokens)}, []))
    spelling.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    spelling.decoder = decoders.ByteLevel()
    names = dict(zip(("unk_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=spelling, **names)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    torch.manual_seed(22)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokens),
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=16384,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    with torch.no_grad():
        # All embeddings are close to 1: the sum of a row of the output decides how likely its token is.
        model.model.embed_tokens.weight.normal_(1.0, 0.02)
        likely = torch.full((len(tokens), WIDTH), -10 / WIDTH)
        likely[-len(WORDS) :] += 20 / WIDTH
        likely[2] += 20.5 / WIDTH
        model.lm_head.weight.copy_(likely)
    model.generation_config = GenerationConfig(do_sample=True, bos_token_id=1, eos_token_id=2)
    model.save_pretrained(path)


port, folder = sys.argv[1], Path(sys.argv[2])
if not (folder / "tiny").exists():
    make_model(folder / "tiny")
cache = folder / "cache"
(cache / "hub").mkdir(parents=True, exist_ok=True)  # it lists the models of its cache
os.chdir(folder)
os.environ |= {"HF_HOME": str(cache), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
program = str(Path(sys.executable).with_name("transformers"))
os.execv(program, [program, "serve", "tiny", "--host", "127.0.0.1", "--port", port, "--device", "cpu"])
