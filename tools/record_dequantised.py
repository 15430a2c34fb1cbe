#!/usr/bin/env python3
"""Records what transformers computes for a quantised checkpoint whose weights are expanded to float32 by the published rules.

usage: record_dequantised.py FOLDER IDS_FROM OUT
  FOLDER    a checkpoint in NVFP4 (either kind), MXFP4, MXFP8, INT4 in groups of 32, or FP8 by block, channel or tensor
  IDS_FROM  a reference.safetensors whose input_ids are run
  OUT       the reference file to write, for `reckoner verify FOLDER --reference OUT`
Runs where torch and transformers are installed. The expansion here shares nothing with Reckoner's.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
SCALES = ("weight_scale", "weight_scale_2", "weight_scale_inv", "weight_global_scale", "weight_shape", "weight_packed")
UNUSED = ("input_scale", "input_global_scale")


def nibbles(packed):
    """[rows, n] bytes -> [rows, 2 n] codes, the low nibble first."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1).long()


def spread(scales, block):
    return scales.float().repeat_interleave(block, dim=1)


def e8m0(scales):
    return torch.exp2(scales.view(torch.uint8).float() - 127)


def expand_four_bits(parts):
    data = parts.get("weight_packed", parts.get("weight"))
    scale = parts["weight_scale"]
    if data.dtype == torch.int32:
        return (nibbles(data.contiguous().view(torch.uint8)) - 8).float() * spread(scale, 32)
    values = E2M1[nibbles(data)]
    if scale.dtype != torch.float8_e4m3fn:
        return values * spread(e8m0(scale), 32)
    values = values * spread(scale, 16)
    if "weight_global_scale" in parts:
        return values / parts["weight_global_scale"]
    return values * parts["weight_scale_2"]


def expand_fp8(parts):
    values = parts["weight"].float()
    rows, cols = values.shape
    grid = parts.get("weight_scale_inv")
    scale = parts.get("weight_scale")
    if grid is None and scale.dtype == torch.uint8:
        return values * spread(e8m0(scale), 32)
    if grid is None:
        return values * scale.float().reshape(-1, 1)
    grid = grid.float().repeat_interleave(128, dim=0)[:rows].repeat_interleave(128, dim=1)[:, :cols]
    return values * grid


def expand(parts):
    weight = parts.get("weight")
    if weight is not None and weight.is_floating_point() and weight.dtype.itemsize > 1:
        return weight.float()
    if weight is not None and weight.dtype == torch.float8_e4m3fn:
        return expand_fp8(parts)
    return expand_four_bits(parts)


def expanded_tensors(folder):
    tensors = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors |= load_file(file)
    modules = {}
    result = {}
    for name, tensor in tensors.items():
        module, _, part = name.rpartition(".")
        if part in UNUSED:
            continue
        if part == "weight" or part in SCALES:
            modules.setdefault(module, {})[part] = tensor
        else:
            result[name] = tensor.float()
    for module, parts in modules.items():
        result[module + ".weight"] = expand(parts).contiguous()
    return result


def build_model(folder):
    config = json.loads((folder / "config.json").read_text())
    config.pop("quantization_config", None)
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "config.json").write_text(json.dumps(config))
        save_file(expanded_tensors(folder), Path(scratch, "model.safetensors"), metadata={"format": "pt"})
        return AutoModelForCausalLM.from_pretrained(scratch, dtype=torch.float32, attn_implementation="eager").eval()


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    folder, ids_from, out = map(Path, sys.argv[1:])
    ids = load_file(ids_from)["input_ids"].long()[None]
    with torch.no_grad():
        output = build_model(folder)(ids, output_hidden_states=True)
    reference = {"input_ids": ids[0].int(), "logits": output.logits[0].float().contiguous()}
    for layer, hidden in enumerate(output.hidden_states):
        reference[f"hidden.{layer}"] = hidden[0].float().contiguous()
    save_file(reference, out, metadata={"transformers": transformers.__version__, "compute": "float32, weights expanded"})


if __name__ == "__main__":
    main()
