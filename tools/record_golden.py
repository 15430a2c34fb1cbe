#!/usr/bin/env python3
"""Writes a tiny random checkpoint of every model family, with the logits that transformers computes for it.

Each case is a folder: a checkpoint in the published layout, and reference.safetensors with
  input_ids [tokens] i32
  logits    [tokens, vocab] f32
  hidden.L  [tokens, hidden] f32: L = 0 is the embedding, then after each layer; the last one is after the final norm.
Runs where torch and transformers are installed; no GPU is needed.
"""

import argparse
import shutil
import sys
import traceback
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS = {"a": 96, "b": 77}  # by variant
DECODED_TOKENS = 5  # the last ones are also computed one at a time, with a cache

BASE = {
    "vocab_size": 320,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
MOE = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "intermediate_size": 96,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
}


def mla(q_lora, kv_lora, nope, rope, v, heads):
    return {
        "q_lora_rank": q_lora,
        "kv_lora_rank": kv_lora,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": v,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
    }


MLA = {"a": mla(48, 32, 24, 16, 20, 4), "b": mla(40, 64, 16, 32, 32, 3)}
MLA_PUBLISHED = mla(96, 512, 64, 64, 64, 8)


def indexer(heads, head_dim, topk):
    return {"index_n_heads": heads, "index_head_dim": head_dim, "index_topk": topk}


# Many index heads: with few, ReLU leaves exact-zero scores whose ties at the top-k boundary have no defined answer.
INDEXER = {"a": indexer(16, 32, 16), "b": indexer(12, 64, 8)}
INDEXER_PUBLISHED = indexer(16, 128, 48)


def plain_rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


def yarn_rope(theta, factor):
    return {
        "rope_type": "yarn",
        "rope_theta": theta,
        "factor": factor,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 64,
    }


def cases(variant):
    """(folder name, config) of every case. The order is part of the seeds."""
    is_b = variant == "b"
    attention, index = MLA[variant], INDEXER[variant]
    no_groups = {"n_group": 1, "topk_group": 1}
    groups = {"n_group": 4, "topk_group": 2}

    glm = {"model_type": "glm_moe_dsa"} | BASE | attention | index | MOE | {"rope_parameters": plain_rope(1e6)}
    yield "glm_moe_dsa", glm
    shared = {"num_hidden_layers": 8, "indexer_types": None, "index_topk_freq": 4, "index_skip_topk_offset": 3}
    shared |= {"rope_parameters": plain_rope(8e6), "routed_scaling_factor": 1.0 if is_b else 2.5}
    yield "glm_moe_dsa_shared", glm | shared
    published = {"model_type": "glm_moe_dsa"} | BASE | MLA_PUBLISHED | INDEXER_PUBLISHED | MOE
    published |= {"rope_parameters": plain_rope(1e6), "num_hidden_layers": 2, "num_experts_per_tok": 4}
    yield "glm_moe_dsa_real_latent", published

    deepseek_v32 = {"model_type": "deepseek_v32"} | BASE | attention | index | MOE | groups
    deepseek_v32 |= {"rope_parameters": yarn_rope(1e4, 40.0), "rms_norm_eps": 1e-6, "num_experts_per_tok": 3}
    yield "deepseek_v32", deepseek_v32
    deepseek_v3 = {"model_type": "deepseek_v3"} | BASE | attention | MOE
    kimi = {"rope_parameters": yarn_rope(5e4, 64.0), "routed_scaling_factor": 2.827}
    kimi |= {"n_routed_experts": 12 if is_b else 8}
    yield "kimi_k2", deepseek_v3 | no_groups | kimi
    grouped = {"rope_parameters": yarn_rope(1e4, 40.0), "rms_norm_eps": 1e-6}
    yield "deepseek_v3_groups", deepseek_v3 | groups | grouped

    glm4 = {"model_type": "glm4_moe"} | BASE | MOE | no_groups
    glm4 |= {"num_attention_heads": 6 if is_b else 4, "num_key_value_heads": 2, "head_dim": 32}
    glm4 |= {"attention_bias": True, "use_qk_norm": True}
    glm4 |= {"rope_parameters": plain_rope(1e6) | {"partial_rotary_factor": 0.5}}
    yield "glm4_moe", glm4
    lite = {"model_type": "glm4_moe_lite"} | BASE | attention | MOE | no_groups
    yield "glm4_moe_lite", lite | {"rope_parameters": plain_rope(1e6)}


def build_model(config, generator):
    """A float32 model of this config whose weights are random and exact in bfloat16."""
    config = dict(config)
    model_config = AutoConfig.for_model(config.pop("model_type"), **config)
    model_config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(model_config, dtype=torch.float32, attn_implementation="eager").eval()
    for name, tensor in model.state_dict().items():
        randomise(name, tensor, generator)
    return model


def randomise(name, tensor, generator):
    """Fills one tensor; every branch makes one draw, so that the order of the names fixes the values."""

    def noise():
        return torch.randn(tensor.shape, generator=generator)

    if "e_score_correction_bias" in name:
        tensor.copy_(noise() * 0.3)  # stays float32 in the checkpoint
    elif name.endswith("norm.weight") or "layernorm.weight" in name:
        tensor.copy_((1 + 0.2 * noise()).bfloat16().float())
    elif tensor.ndim == 1:
        tensor.copy_((0.2 * noise()).bfloat16().float())
    elif tensor.is_floating_point():
        scale = 1.0 if "embed" in name else 0.6 / tensor.shape[-1] ** 0.5
        tensor.copy_((noise() * scale).bfloat16().float())


@torch.no_grad()
def decode_drift(model, ids, logits):
    """The largest difference between `logits` and those of decoding the last tokens one at a time with a cache."""
    tokens = ids.shape[1]
    start = tokens - DECODED_TOKENS
    past = model(ids[:, :start], use_cache=True).past_key_values
    steps = []
    for token in range(start, tokens):
        output = model(ids[:, token : token + 1], past_key_values=past, use_cache=True)
        past = output.past_key_values
        steps.append(output.logits[0, -1])
    return float((torch.stack(steps) - logits[start:]).abs().max())


def save_checkpoint(model, folder):
    """Saves in bfloat16, the routing bias in float32 as published checkpoints have it."""
    full = {name: tensor.clone() for name, tensor in model.state_dict().items() if "e_score" in name}
    model.to(torch.bfloat16)
    for name, buffer in model.named_buffers():
        if "e_score" in name:
            buffer.data = full[name].float()
    model.save_pretrained(folder)


def tensor_count(folder):
    count = 0
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, "pt") as tensors:
            count += len(tensors.keys())
    return count


def record(name, config, folder, generator, tokens):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = build_model(config, generator)
    ids = torch.randint(2, config["vocab_size"], (1, tokens), generator=generator)
    with torch.no_grad():
        output = model(ids, output_hidden_states=True)
    logits = output.logits[0]
    drift = decode_drift(model, ids, logits)
    save_checkpoint(model, folder)

    reference = {"input_ids": ids[0].int(), "logits": logits.float().contiguous()}
    for layer, hidden in enumerate(output.hidden_states):
        reference[f"hidden.{layer}"] = hidden[0].float().contiguous()
    about = {
        "transformers": transformers.__version__,
        "compute": "float32, weights rounded to bfloat16",
        "case": name,
    }
    save_file(reference, folder / "reference.safetensors", metadata=about)
    spread = round(float(logits.std()), 3)
    print(f"{name}: logits spread {spread}, decoding drift {drift:.1e}, {tensor_count(folder)} tensors", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the cases")
    parser.add_argument("--seed", type=int, required=True, help="case k is drawn from seed * 100 + k")
    parser.add_argument("--variant", choices=sorted(TOKENS), default="a", help="which sizes (default: a)")
    arguments = parser.parse_args()

    failed = 0
    for number, (name, config) in enumerate(cases(arguments.variant)):
        generator = torch.Generator().manual_seed(arguments.seed * 100 + number)
        try:
            record(name, config, arguments.out / name, generator, TOKENS[arguments.variant])
        except Exception:  # one family that this transformers cannot build must not hide the others
            failed += 1
            print(f"{name}: FAILED", flush=True)
            traceback.print_exc()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
