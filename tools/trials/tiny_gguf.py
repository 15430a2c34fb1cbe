#!/usr/bin/env python3
"""Writes a llama model of a few hundred kB that has something to say, for trials of llama.cpp's server.

  tiny_gguf.py OUT.gguf

Random weights alone would answer with noise, and every probe would call it garbage. So the layers are random but small,
and the output layer knows what follows what: an answer is TEXT below from its beginning, a completion is TEXT from
somewhere in it. The seed is fixed. Needs gguf and numpy.
"""

import argparse
import sys
from pathlib import Path

try:
    import gguf
    import numpy
except ImportError as error:
    sys.exit(f"tiny_gguf.py: {error.name} is not installed: pip install gguf==0.19.0 numpy")

TEXT = """The lighthouse keeper counted seven ships before breakfast, wrote their names into a green book and put the
kettle on. Fog came up from the south, slowly at first, then all at once, until even the gulls fell silent. He lit the
great lamp, wound its clock and listened. Somewhere below him a bell rang twice: one boat was looking for the harbour.
By noon it had been found, its crew sat around his table, and nobody spoke about the weather any more."""
SEED = 7
CONTEXT = 32768
WIDTH, HEADS, LAYERS, HIDDEN = 64, 2, 2, 128  # 32 values a head: a block of the quantised caches is 32 wide
UNKNOWN, BEGIN, END = 0, 1, 2
ANSWER_ID = 3 + 256 + 1  # after those three, the bytes and QUESTION; the text follows
QUESTION, ANSWER = "<|question|>", "<|answer|>"
MESSAGE = QUESTION + "{{ message['role'] }}: {{ message['content'] }}\n"
TEMPLATE = "{% for message in messages %}" + MESSAGE + "{% endfor %}" + ANSWER
SHARPNESS = 24.0  # the largest logit, about: what follows is then certain at any usual temperature
NOISE = 0.02  # of the layers' weights: enough to compute with, too little to change what follows


def pieces():
    """TEXT in tokens of two words. No two may be the same: what follows is known from one token alone."""
    words = TEXT.split()
    result = ["\u2581" + "\u2581".join(words[i : i + 2]) for i in range(0, len(words), 2)]
    assert len(set(result)) == len(result), "a piece of the text occurs twice"
    return result


def vocabulary():
    """[(text, score, type)] by id: three that every vocabulary has, the bytes, two for the template, the text."""
    kind = gguf.TokenType
    tokens = [("<unk>", 0.0, kind.UNKNOWN), ("<s>", 0.0, kind.CONTROL), ("</s>", 0.0, kind.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", 0.0, kind.BYTE) for byte in range(256)]
    tokens += [(QUESTION, 0.0, kind.CONTROL), (ANSWER, 0.0, kind.CONTROL)]
    return tokens + [(piece, -float(i), kind.NORMAL) for i, piece in enumerate(pieces())]


def weights(tokens, random):
    """Tensors by name, each [out, in]."""

    def small(*shape):
        return (NOISE * random.standard_normal(shape)).astype(numpy.float16)

    ones = numpy.ones(WIDTH, dtype=numpy.float32)
    first = len(tokens) - len(pieces())
    # The text has directions of its own, one a token; all else shares those that are left: nothing else sounds like it.
    directions = numpy.linalg.qr(random.standard_normal((WIDTH, WIDTH)))[0]
    text = len(tokens) - ANSWER_ID
    embedding = random.standard_normal((len(tokens), WIDTH - text)) @ directions[text:]
    embedding[ANSWER_ID:] = directions[:text]
    embedding *= numpy.sqrt(WIDTH) / numpy.linalg.norm(embedding, axis=1, keepdims=True)
    # A row of the output layer is the sum of the embeddings of all tokens that it follows.
    follows = {ANSWER_ID: first} | {i: i + 1 for i in range(first, len(tokens) - 1)} | {len(tokens) - 1: END}
    for token in range(first):
        if token != ANSWER_ID:
            follows[token] = int(random.integers(first, len(tokens) - 8))
    output = numpy.zeros_like(embedding)
    for token, following in follows.items():
        output[following] += embedding[token] * (SHARPNESS / WIDTH)
    result = {
        "token_embd.weight": embedding.astype(numpy.float16),
        "output_norm.weight": ones,
        "output.weight": output.astype(numpy.float16),
    }
    for layer in range(LAYERS):
        names = {"attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH)}
        names |= {"attn_output": (WIDTH, WIDTH)}
        names |= {"ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
        result |= {f"blk.{layer}.{name}.weight": small(*shape) for name, shape in names.items()}
        result |= {f"blk.{layer}.{name}.weight": ones for name in ("attn_norm", "ffn_norm")}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    tokens = vocabulary()
    assert tokens[ANSWER_ID][0] == ANSWER
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_name("lighthouse")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _, _ in tokens])
    writer.add_token_scores([score for _, score, _ in tokens])
    writer.add_token_types([kind for _, _, kind in tokens])
    writer.add_unk_token_id(UNKNOWN)
    writer.add_bos_token_id(BEGIN)
    writer.add_eos_token_id(END)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in weights(tokens, numpy.random.default_rng(SEED)).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
