"""llama.cpp's own server with a tiny random model, made on the spot: `llama_cpp.py PORT FOLDER`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np
import xllamacpp
from gguf import GGMLQuantizationType, GGUFWriter, TokenType

WIDTH, LAYERS, HEADS, CONTEXT = 64, 2, 4, 16384
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = [f"▁{first}{vowel}{last}" for first in "bdklmnrst" for vowel in "aeiou" for last in "lmnrst"]
TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"


def make_model(path: Path) -> None:
    """Write a model that chooses words at random, and ends after some twenty of them, seldom at once."""
    random = np.random.default_rng(22)
    tokens = [*SPECIAL, *BYTES, *WORDS]
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_file_type(GGMLQuantizationType.F32)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    kinds = {"<unk>": TokenType.UNKNOWN, "<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL}
    kinds |= dict.fromkeys(BYTES, TokenType.BYTE)
    writer.add_token_types([kinds.get(token, TokenType.NORMAL) for token in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)

    def add(name: str, *shape: int, scale: float = 0.02, mean: float = 0.0) -> None:
        writer.add_tensor(name, random.normal(mean, scale, shape).astype(np.float32))

    # All embeddings are close to 1, so that the sum of a row of the output decides how likely its token is.
    add("token_embd.weight", len(tokens), WIDTH, mean=1.0)
    add("output_norm.weight", WIDTH, mean=1.0, scale=0.0)
    likely = np.full((len(tokens), WIDTH), -10 / WIDTH) + random.normal(0, 0.001, (len(tokens), WIDTH))
    likely[-len(WORDS) :] += 20 / WIDTH
    likely[2] += 20.5 / WIDTH
    writer.add_tensor("output.weight", likely.astype(np.float32))
    for layer in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{norm}.weight", WIDTH, mean=1.0, scale=0.0)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
        for part in ("ffn_gate", "ffn_up"):
            add(f"blk.{layer}.{part}.weight", 2 * WIDTH, WIDTH)
        add(f"blk.{layer}.ffn_down.weight", WIDTH, 2 * WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


port, folder = int(sys.argv[1]), Path(sys.argv[2])
model = folder / "random.gguf"
if not model.exists():
    make_model(model)
params = xllamacpp.CommonParams()
params.model.path = str(model)
params.model_alias = {"tiny"}
params.port = port
params.n_ctx = CONTEXT
params.n_parallel = 2
params.cpuparams.n_threads = 1
params.warmup = False
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
signal.pause()
