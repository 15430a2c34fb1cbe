#!/usr/bin/env python3
"""Exports a trained pocket model as Hugging Face checkpoints, examines it, and records reference logits.

Writes pocket-bf16 and pocket-nvfp4 (ModelOpt's layout), evaluation.json and pocket-golden.safetensors.
"""

import argparse
import json
import random
import shutil
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer

import exam
import nvfp4
import tasks
from model import Config, Model
from train import SPECIAL

HERE = Path(__file__).resolve().parent
CONFIG = Config()

END_TOKENS = ("<|endoftext|>", "<|user|>", "<|observation|>")
TRANSFORMERS_VERSION = "5.17.0"
PRODUCER = {"name": "pocket", "version": "1"}
MAX_POSITIONS = 8192

BF16_SHARD_BYTES = 6_000_000
NVFP4_SHARD_BYTES = 7_000_000

CALIBRATION_SEED = 5
CALIBRATION_SAMPLES = 400
CALIBRATION_ROWS, CALIBRATION_ROW_TOKENS = 12, 2048
UNSEEN_AMAX = (8.0, 8.0)  # for an expert that no calibration token reached

MTP_CHATS = 200
GOLDEN_SEED = 11
GOLDEN_NEEDLE_LINES = 100
GOLDEN_LOGIT_ROWS = 16
GOLDEN_NEW_TOKENS = 48


# --- tensors -------------------------------------------------------------------------------------------------------


def mlp_tensors(name, tensor):
    """The checkpoint's names and tensors for one of the trainer's mlp parameters; none when the names agree."""
    if name == "mlp.w1":
        for expert in range(CONFIG.experts):
            yield f"mlp.experts.{expert}.gate_proj.weight", tensor[expert, :, : CONFIG.moe_inter].t()
            yield f"mlp.experts.{expert}.up_proj.weight", tensor[expert, :, CONFIG.moe_inter :].t()
    elif name == "mlp.w2":
        for expert in range(CONFIG.experts):
            yield f"mlp.experts.{expert}.down_proj.weight", tensor[expert].t()
    elif name == "mlp.gate":
        yield "mlp.gate.weight", tensor
    elif name == "mlp.bias":
        yield "mlp.gate.e_score_correction_bias", tensor.float()
    else:
        yield name, tensor


def layer_tensors(state, source, target):
    """The tensors of one layer under their checkpoint names."""
    tensors = {}
    for name, tensor in state.items():
        if name.startswith(source):
            tensors |= {target + new: value for new, value in mlp_tensors(name[len(source) :], tensor)}
    return tensors


def checkpoint_tensors(state):
    """The trained state under the published names: BF16, except for the routing bias, which stays F32."""
    tensors = {
        "model.embed_tokens.weight": state["embed.weight"],
        "model.norm.weight": state["norm.weight"],
        "lm_head.weight": state["head.weight"],
    }
    for layer in range(CONFIG.layers):
        tensors |= layer_tensors(state, f"layers.{layer}.", f"model.layers.{layer}.")
    draft = f"model.layers.{CONFIG.layers}."
    tensors |= layer_tensors(state, "mtp.block.", draft)
    for name in ("enorm", "hnorm", "eh_proj"):
        tensors[f"{draft}{name}.weight"] = state[f"mtp.{name}.weight"]
    tensors[f"{draft}shared_head.norm.weight"] = state["mtp.norm.weight"]
    return {
        name: (tensor if "e_score" in name else tensor.to(torch.bfloat16)).contiguous().cpu()
        for name, tensor in tensors.items()
    }


@torch.no_grad()
def calibrate(model, tokenizer, words):
    """(layer, expert) -> the largest activation that its gate and up projections see, and its down projection."""
    rng = random.Random(CALIBRATION_SEED)
    ids = []
    for _ in range(CALIBRATION_SAMPLES):
        ids += tokenizer.encode(tasks.sample(words, rng), add_special_tokens=False).ids
    rows = torch.tensor(ids[: CALIBRATION_ROWS * CALIBRATION_ROW_TOKENS], device="cuda")
    amax = {}

    def watch(layer):
        def hook(moe, arguments):
            x = arguments[0].reshape(-1, CONFIG.hidden).float()
            probabilities = (x @ moe.gate.float().t()).sigmoid()
            top = (probabilities + moe.bias).topk(CONFIG.topk, -1).indices
            for expert in range(CONFIG.experts):
                routed = (top == expert).any(-1)
                if routed.any():
                    gate, up = (x[routed] @ moe.w1[expert].float()).chunk(2, -1)
                    down = F.silu(gate) * up
                    amax[layer, expert] = (float(x[routed].abs().max()), float(down.abs().max()))

        return hook

    for layer, moe in model.moe_layers():
        moe.register_forward_pre_hook(watch(layer))
    with torch.autocast("cuda", torch.bfloat16):
        model(rows.view(CALIBRATION_ROWS, CALIBRATION_ROW_TOKENS), sparse=True, mtp=False)
    return amax


def quantise(tensors, amax):
    """Routed experts of the main layers in NVFP4, all else as it is. Also returns every weight dequantised, in F32."""
    quantised, dequantised = {}, {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if ".mlp.experts." not in name or int(parts[2]) >= CONFIG.layers:
            quantised[name], dequantised[name] = tensor, tensor.float()
            continue
        base = name.removesuffix(".weight")
        is_down = "down" in name
        # Gate and up share one tensor scale, so that a server may fuse them.
        pair = [base] if is_down else [base.replace("up_proj", "gate_proj"), base.replace("gate_proj", "up_proj")]
        weight_amax = max(tensors[member + ".weight"].float().abs().max() for member in pair)
        packed, scale, tensor_scale = nvfp4.pack(tensor.float(), weight_amax)
        input_amax = amax.get((int(parts[2]), int(parts[5])), UNSEEN_AMAX)[1 if is_down else 0]
        quantised[name] = packed
        quantised[base + ".weight_scale"] = scale
        quantised[base + ".weight_scale_2"] = tensor_scale
        quantised[base + ".input_scale"] = torch.tensor(input_amax / nvfp4.TENSOR_RANGE)
        dequantised[name] = nvfp4.unpack(packed, scale, tensor_scale)
    return quantised, dequantised


@torch.no_grad()
def load_experts(model, dequantised):
    """Puts the dequantised experts into the trained model, to examine what the NVFP4 checkpoint computes."""
    for layer, moe in model.moe_layers():
        for expert in range(CONFIG.experts):
            base = f"model.layers.{layer}.mlp.experts.{expert}."
            gate_up = [dequantised[base + "gate_proj.weight"], dequantised[base + "up_proj.weight"]]
            moe.w1[expert].copy_(torch.cat(gate_up).t())
            moe.w2[expert].copy_(dequantised[base + "down_proj.weight"].t())


# --- checkpoint files ----------------------------------------------------------------------------------------------


def write_json(path, value, indent=2):
    path.write_text(json.dumps(value, indent=indent), encoding="utf-8")


def split_shards(tensors, limit_bytes):
    """Tensors in order, in groups of at most `limit_bytes`."""
    shards, current, size = [], {}, 0
    for name, tensor in tensors.items():
        if current and size + tensor.nbytes > limit_bytes:
            shards.append(current)
            current, size = {}, 0
        current[name] = tensor
        size += tensor.nbytes
    return [*shards, current]


def write_shards(folder, tensors, limit_bytes):
    shards = split_shards(tensors, limit_bytes)
    weight_map = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, file)
    total = sum(tensor.nbytes for tensor in tensors.values())
    write_json(
        folder / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": weight_map},
        indent=1,
    )
    print(folder.name, len(shards), "shards", total / 1e6, "MB", flush=True)


def model_config(end_ids):
    """config.json in the published form of glm_moe_dsa."""
    c = CONFIG
    return {
        "architectures": ["GlmMoeDsaForCausalLM"],
        "model_type": "glm_moe_dsa",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "dtype": "bfloat16",
        "eos_token_id": end_ids,
        "pad_token_id": end_ids[0],
        "first_k_dense_replace": c.dense_layers,
        "head_dim": c.rope,
        "hidden_act": "silu",
        "hidden_size": c.hidden,
        "index_head_dim": c.index_dim,
        "index_n_heads": c.index_heads,
        "index_topk": c.index_topk,
        "indexer_rope_interleave": True,
        "rope_interleave": True,
        "initializer_range": 0.02,
        "intermediate_size": c.dense_inter,
        "kv_lora_rank": c.kv_lora,
        "max_position_embeddings": MAX_POSITIONS,
        "moe_intermediate_size": c.moe_inter,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "n_routed_experts": c.experts,
        "n_shared_experts": c.shared,
        "norm_topk_prob": True,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.heads,
        "num_experts_per_tok": c.topk,
        "num_hidden_layers": c.layers,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": c.q_lora,
        "qk_nope_head_dim": c.nope,
        "qk_rope_head_dim": c.rope,
        "v_head_dim": c.v,
        "rms_norm_eps": c.eps,
        "rope_parameters": {"rope_theta": c.theta, "rope_type": "default"},
        "routed_scaling_factor": c.scale,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "tie_word_embeddings": False,
        "transformers_version": TRANSFORMERS_VERSION,
        "use_cache": True,
        "vocab_size": c.vocab,
    }


def unquantised_modules():
    """What ModelOpt's recipe for this family leaves in BF16."""
    return [
        "lm_head",
        "model.embed_tokens",
        "model.layers.0.mlp*",
        f"model.layers.{CONFIG.layers}*",
        *(f"model.layers.{layer}.self_attn*" for layer in range(CONFIG.layers)),
        *(f"model.layers.{layer}.mlp.shared_experts*" for layer in range(CONFIG.dense_layers, CONFIG.layers)),
    ]


def quantization_config():
    """The quantisation section of config.json."""
    number = {"num_bits": 4, "type": "float", "group_size": nvfp4.GROUP, "dynamic": False}
    group = {"weights": number, "input_activations": number, "targets": ["Linear"]}
    return {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "producer": PRODUCER,
        "ignore": unquantised_modules(),
        "config_groups": {"group_0": group},
    }


def hf_quant_config():
    """ModelOpt's own file, which repeats the above in its older form."""
    quantization = {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": None,
        "group_size": nvfp4.GROUP,
        "exclude_modules": unquantised_modules(),
    }
    return {"producer": PRODUCER, "quantization": quantization}


def tokenizer_config():
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": MAX_POSITIONS,
        "clean_up_tokenization_spaces": False,
        "extra_special_tokens": SPECIAL,
        "padding_side": "left",
    }


def generation_config(end_ids):
    return {
        "do_sample": True,
        "temperature": 1.0,
        "top_p": 0.95,
        "eos_token_id": end_ids,
        "pad_token_id": end_ids[0],
        "transformers_version": TRANSFORMERS_VERSION,
    }


def fresh_folder(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def write_checkpoint(folder, tensors, limit_bytes, config, end_ids, tokenizer_file):
    fresh_folder(folder)
    write_shards(folder, tensors, limit_bytes)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", generation_config(end_ids))
    write_json(folder / "tokenizer_config.json", tokenizer_config())
    shutil.copy(tokenizer_file, folder / "tokenizer.json")
    shutil.copy(HERE / "chat_template.jinja", folder)


# --- examination ---------------------------------------------------------------------------------------------------


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


@torch.no_grad()
def generate(model, tokenizer, end_ids, prompts, max_tokens):
    """Greedy continuations of all prompts at once, without a cache, special tokens included."""
    rows = [encode(tokenizer, prompt) for prompt in prompts]
    answers = [[] for _ in rows]
    done = [False] * len(rows)
    for _ in range(max_tokens):
        batch = torch.full((len(rows), max(len(row) for row in rows)), end_ids[0], device="cuda")
        for i, row in enumerate(rows):
            batch[i, : len(row)] = torch.tensor(row)
        with torch.autocast("cuda", torch.bfloat16):
            logits, _, _ = model(batch, sparse=True, mtp=False)
        for i, row in enumerate(rows):
            if not done[i]:
                token = int(logits[i, len(row) - 1].argmax())
                row.append(token)
                answers[i].append(token)
                done[i] = token in end_ids
        if all(done):
            break
    return [tokenizer.decode(answer, skip_special_tokens=False) for answer in answers]


@torch.no_grad()
def mtp_agreement(model, tokenizer, texts):
    """How often the draft of a token equals the main model's own choice for it."""
    hits = total = 0
    for text in texts:
        ids = torch.tensor([encode(tokenizer, text)], device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits, draft_logits, _ = model(ids, sparse=True)
        hits += int((draft_logits[0, :-1].argmax(-1) == logits[0, 1:-1].argmax(-1)).sum())
        total += draft_logits.shape[1] - 1
    return hits / total


def evaluate(model, tokenizer, words, end_ids):
    """The share of right answers in each group of the exam, and the draft's agreement."""
    model.eval()
    rng = random.Random(exam.SEED)
    results = {}
    for group, questions in exam.questions(words, rng).items():
        prompts = [question.prompt for question in questions]
        answers = generate(model, tokenizer, end_ids, prompts, questions[0].max_tokens)
        right = sum(question.accepts(answer) for question, answer in zip(questions, answers, strict=True))
        is_needle = group.startswith("needle")
        results[group if is_needle else f"{group} exact"] = right / len(questions)
        if is_needle:
            tokens = [len(encode(tokenizer, prompt)) for prompt in prompts]
            results[group.replace("lines", "tokens")] = float(np.mean(tokens))
    results["mtp agreement"] = mtp_agreement(model, tokenizer, [tasks.chat(words, rng) for _ in range(MTP_CHATS)])
    print(json.dumps(results), flush=True)
    return results


# --- reference logits ----------------------------------------------------------------------------------------------


def golden_cases(words):
    """Name -> (messages, tools)."""

    def user(text):
        return {"role": "user", "content": text}

    answer = {"role": "assistant", "content": "something that causes irritation and annoyance"}
    needle = tasks.needle(words, random.Random(GOLDEN_SEED), GOLDEN_NEEDLE_LINES)
    needle = needle[needle.find("<|user|>") + len("<|user|>") : needle.find("<|assistant|>")]
    return {
        "define": ([user("What is a telescope?")], None),
        "multi": ([user("Define thorn."), answer, user("Describe erupt as JSON.")], None),
        "needle": ([user(needle)], None),
        "tool": ([user("What is the weather in Oslo? Use celsius.")], tasks.TOOLS[:3]),
    }


def load_in_transformers(folder, bf16_folder, dequantised):
    """transformers' own model with the dequantised weights, in float32."""
    from transformers import GlmMoeDsaForCausalLM

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(bf16_folder, folder, ignore=shutil.ignore_patterns("*.safetensors", "*index.json"))
    draft = f"layers.{CONFIG.layers}."
    main = {name: tensor.float() for name, tensor in dequantised.items() if draft not in name}
    save_file(main, folder / "model.safetensors", metadata={"format": "pt"})
    model = GlmMoeDsaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.cuda().eval()


@torch.no_grad()
def golden_tensors(model, ids, end_ids):
    """What transformers computes for one prompt."""
    batch = torch.tensor([ids], device="cuda")
    output = model(batch, output_hidden_states=True)
    logits = output.logits[0].float()
    generated = model.generate(batch, max_new_tokens=GOLDEN_NEW_TOKENS, do_sample=False, eos_token_id=end_ids)
    hidden = torch.stack([hidden[0, -1].float() for hidden in output.hidden_states])
    return {
        "input_ids": torch.tensor(ids, dtype=torch.int32),
        "last_logits": logits[-GOLDEN_LOGIT_ROWS:].cpu().contiguous(),
        "argmax": logits.argmax(-1).int().cpu(),
        "max_logprob": logits.log_softmax(-1).max(-1).values.cpu().contiguous(),
        "generated": generated[0, len(ids) :].int().cpu().contiguous(),
        "hidden_last": hidden.cpu().contiguous(),
    }


def record_golden(out, model, tokenizer, words, end_ids):
    """Writes pocket-golden.safetensors; its metadata holds each case's messages, tools and rendered text."""
    from transformers import AutoTokenizer

    hf_tokenizer = AutoTokenizer.from_pretrained(out / "pocket-nvfp4")
    tensors, metadata = {}, {}
    for name, (messages, tools) in golden_cases(words).items():
        text = hf_tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
        ids = hf_tokenizer(text, add_special_tokens=False)["input_ids"]
        assert ids == encode(tokenizer, text)
        if tools:
            assert text.startswith(f"{tasks.PROMPT_START}<|system|>{tasks.tool_system(tools)}<|user|>"), text
        case = golden_tensors(model, ids, end_ids)
        generated = hf_tokenizer.decode(case["generated"].tolist())
        tensors |= {f"{name}.{key}": tensor for key, tensor in case.items()}
        about = {"messages": messages, "tools": tools, "text": text, "generated_text": generated}
        metadata[name] = json.dumps(about, ensure_ascii=False)
        print(name, len(ids), repr(generated), flush=True)
    save_file(tensors, out / "pocket-golden.safetensors", metadata=metadata)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trained", type=Path, help="folder with train.py's tokenizer.json and model.pt")
    parser.add_argument("out", type=Path, help="folder for the checkpoints")
    arguments = parser.parse_args()
    trained, out = arguments.trained, arguments.out
    out.mkdir(parents=True, exist_ok=True)

    words = exam.load_words()
    tokenizer_file = trained / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    end_ids = [tokenizer.token_to_id(token) for token in END_TOKENS]
    config = model_config(end_ids)

    model = Model(CONFIG).cuda()
    model.load_state_dict(torch.load(trained / "model.pt"))
    bf16 = checkpoint_tensors({name: tensor.detach().float() for name, tensor in model.state_dict().items()})
    write_checkpoint(out / "pocket-bf16", bf16, BF16_SHARD_BYTES, config, end_ids, tokenizer_file)

    quantised, dequantised = quantise(bf16, calibrate(model, tokenizer, words))
    config = config | {"quantization_config": quantization_config()}
    write_checkpoint(out / "pocket-nvfp4", quantised, NVFP4_SHARD_BYTES, config, end_ids, tokenizer_file)
    write_json(out / "pocket-nvfp4" / "hf_quant_config.json", hf_quant_config())

    results = {"bf16": evaluate(model, tokenizer, words, end_ids)}
    load_experts(model, dequantised)
    results["nvfp4"] = evaluate(model, tokenizer, words, end_ids)
    write_json(out / "evaluation.json", results, indent=1)

    reference = load_in_transformers(out / "deq", out / "pocket-bf16", dequantised)
    record_golden(out, reference, tokenizer, words, end_ids)


if __name__ == "__main__":
    main()
