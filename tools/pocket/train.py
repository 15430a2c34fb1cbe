#!/usr/bin/env python3
"""Trains the pocket model's tokenizer and weights on one GPU; export.py turns the result into a checkpoint."""

import argparse
import math
import random
import re
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import exam
import tasks
from model import Config, Model

SPECIAL = [
    "<|endoftext|>",
    "[MASK]",
    "[gMASK]",
    "[sMASK]",
    "<sop>",
    "<eop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
]
MARKUP = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "/nothink",
]
# The split that GLM's tokenizer uses.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'d|'ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ADDED_TOKEN_ROOM = 64
TOKENIZER_SAMPLES = 20000
TOKENIZER_SEED = 1

ROW_TOKENS = 2048
SAMPLES_A_BATCH = 64
DATA_SEED = 1000
DATA_WORKERS = 14
PROMPT_WEIGHT = 0.05  # the loss of a token that the model will never have to write

WARMUP_STEPS = 100
FINAL_RATE = 0.02
WEIGHT_RATE = 2.0e-3
INDEXER_RATE = 1.5e-3
DRAFT_LOSS_WEIGHT = 0.2
BIAS_STEP = 0.002
INDEXER_FROM = 0.15  # share of the steps after which the indexer is trained
SPARSE_FROM = 0.85  # share of the steps after which attention is sparse
KL_ROWS = 3
REPORTS = 25


def train_tokenizer(words, vocab):
    """A byte-level BPE over the dictionary and a draw of samples, with GLM's special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    rng = random.Random(TOKENIZER_SEED)

    def text():
        for entry in words:
            word, pos = entry["word"], entry["pos"]
            yield f"What is {word}? The word {word} is a {pos}. {entry['definition']}"
        for _ in range(TOKENIZER_SAMPLES):
            yield re.sub(r"<[^>]*>|\[gMASK\]", " ", tasks.sample(words, rng))

    trainer = trainers.BpeTrainer(
        vocab_size=vocab - ADDED_TOKEN_ROOM,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text(), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP])
    return tokenizer


class PackedSamples(IterableDataset):
    """Endless rows of ROW_TOKENS + 1 token ids, samples back to back, with a loss weight for each token."""

    def __init__(self, words, tokenizer_path):
        self.words = words
        self.tokenizer_path = tokenizer_path

    def __iter__(self):
        row = ROW_TOKENS + 1
        ids, weights = [], []
        for sample_ids, sample_weights in self.samples():
            room = row - len(ids)
            # A sample that would be cut late in the row starts a fresh one.
            if room < len(sample_ids) <= row and room < ROW_TOKENS // 2:
                yield self.arrays(ids + [self.end] * room, weights + [0.0] * room)
                ids, weights = [], []
            ids += sample_ids
            weights += sample_weights
            while len(ids) >= row:
                yield self.arrays(ids[:row], weights[:row])
                ids, weights = ids[row:], weights[row:]

    @staticmethod
    def arrays(ids, weights):
        return np.array(ids, np.int64), np.array(weights, np.float32)

    def samples(self):
        """Encoded samples with their weights, a stream of its own for each worker."""
        info = get_worker_info()
        rng = random.Random(DATA_SEED + (info.id if info else 0))
        tokenizer = Tokenizer.from_file(str(self.tokenizer_path))
        self.end = tokenizer.token_to_id("<|endoftext|>")
        while True:
            texts = [tasks.sample(self.words, rng) for _ in range(SAMPLES_A_BATCH)]
            for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
                yield encoding.ids, self.token_weights(tokenizer, encoding.ids)

    def token_weights(self, tokenizer, ids):
        """Full weight on what follows <|assistant|>, its end token included; on everything in plain text."""
        starts = tokenizer.token_to_id("<|assistant|>")
        stops = (tokenizer.token_to_id("<|user|>"), tokenizer.token_to_id("<|observation|>"))
        counted = ids[-1] == self.end
        weights = []
        for token in ids:
            weights.append(1.0 if counted else PROMPT_WEIGHT)
            if token == starts:
                counted = True
            elif token in stops:
                counted = False
        return weights


def learning_rate(step, peak, steps):
    """Linear warm-up, then a cosine down to FINAL_RATE of the peak."""
    if step < WARMUP_STEPS:
        return peak * step / WARMUP_STEPS
    progress = (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)
    return peak * (FINAL_RATE + (1 - FINAL_RATE) * 0.5 * (1 + math.cos(math.pi * progress)))


def parameter_groups(model):
    """Matrices, vectors, and the indexers' parameters, which are trained and clipped apart."""
    matrices, vectors, indexer = [], [], []
    for name, parameter in model.named_parameters():
        if "indexer" in name:
            indexer.append(parameter)
        elif parameter.ndim >= 2:
            matrices.append(parameter)
        else:
            vectors.append(parameter)
    return matrices, vectors, indexer


def make_optimizer(matrices, vectors, indexer):
    groups = [
        {"params": matrices, "weight_decay": 0.05, "peak": WEIGHT_RATE},
        {"params": vectors, "weight_decay": 0.0, "peak": WEIGHT_RATE},
        {"params": indexer, "weight_decay": 0.0, "peak": INDEXER_RATE},
    ]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)


def weighted_loss(logits, targets, weights):
    """Cross-entropy averaged over the weights."""
    loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return (loss * weights.flatten()).sum() / weights.sum()


def clip_gradients(parameters):
    """Clips to norm 1 and returns the norm; an indexer has no gradient in a step that does not train it."""
    with_gradient = [parameter for parameter in parameters if parameter.grad is not None]
    return torch.nn.utils.clip_grad_norm_(with_gradient, 1.0) if with_gradient else torch.zeros(())


@torch.no_grad()
def balance(moes):
    """Moves each routing bias towards equal load."""
    for moe in moes:
        moe.bias += BIAS_STEP * torch.sign(moe.load.float().mean() - moe.load.float())


def imbalance(moes):
    """The busiest expert's load over the mean."""
    return max(float(moe.load.max() / moe.load.float().mean()) for moe in moes)


def train(model, rows, steps):
    matrices, vectors, indexer = parameter_groups(model)
    optimizer = make_optimizer(matrices, vectors, indexer)
    moes = [moe for _, moe in model.moe_layers()] + [model.mtp.block.mlp]
    started = time.time()
    for step in range(steps):
        ids, weights = (part.cuda(non_blocking=True) for part in next(rows))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, group["peak"], steps)
        sparse = step >= int(steps * SPARSE_FROM)
        trains_indexer = sparse or (step > steps * INDEXER_FROM and step % 2 == 0)

        with torch.autocast("cuda", torch.bfloat16):
            logits, draft_logits, kl = model(ids[:, :-1], sparse=sparse, kl_rows=KL_ROWS if trains_indexer else 0)
        loss = weighted_loss(logits, ids[:, 1:], weights[:, 1:])
        draft_loss = weighted_loss(draft_logits, ids[:, 2:], weights[:, 2:])
        (loss + DRAFT_LOSS_WEIGHT * draft_loss + kl).backward()
        norm = clip_gradients(matrices + vectors)
        clip_gradients(indexer)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        balance(moes)

        if step % max(1, steps // REPORTS) == 0 or step == steps - 1:
            print(
                f"step {step} loss {loss.item():.4f} draft {draft_loss.item():.4f} indexer {float(kl):.4f}"
                f" gradient {norm.item():.2f} busiest expert {imbalance(moes):.2f} {time.time() - started:.0f}s",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder for tokenizer.json and model.pt")
    parser.add_argument("steps", type=int, help="training steps")
    parser.add_argument("--rows", type=int, default=48, help=f"rows of {ROW_TOKENS} tokens in a step (default: 48)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True

    words = exam.load_words()
    config = Config()
    tokenizer = train_tokenizer(words, config.vocab)
    tokenizer_path = arguments.out / "tokenizer.json"
    tokenizer.save(str(tokenizer_path))
    print("tokenizer", tokenizer.get_vocab_size(), flush=True)

    model = Model(config).cuda()
    print(f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.1f}M parameters", flush=True)
    rows = DataLoader(
        PackedSamples(words, tokenizer_path),
        batch_size=arguments.rows,
        num_workers=DATA_WORKERS,
        prefetch_factor=4,
        pin_memory=True,
    )
    train(model, iter(rows), arguments.steps)
    torch.save(model.state_dict(), arguments.out / "model.pt")


if __name__ == "__main__":
    main()
