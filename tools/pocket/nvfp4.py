"""NVFP4 as ModelOpt writes it: 4-bit floats, an E4M3 scale for every 16 of them, one F32 scale for the tensor."""

import torch

GROUP = 16
MAGNITUDES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6.0])  # E2M1 without its sign
E2M1_MAX = 6
E4M3_MAX = 448
E4M3_SMALLEST = 2**-9
TENSOR_RANGE = E2M1_MAX * E4M3_MAX  # the largest value at tensor scale 1


def pack(weight, amax):
    """weight [out, in] f32 and the largest magnitude to represent -> packed u8 [out, in/2], scale e4m3 [out, in/16],
    tensor scale f32. The even column is in the low half of a byte."""
    tensor_scale = (amax / TENSOR_RANGE).float()
    blocks = weight.view(weight.shape[0], -1, GROUP)
    block_amax = blocks.abs().amax(-1)
    scale = (block_amax / E2M1_MAX / tensor_scale).clamp(E4M3_SMALLEST, E4M3_MAX)
    scale = torch.where(block_amax == 0, torch.ones_like(scale), scale).to(torch.float8_e4m3fn)
    x = blocks / (scale.float() * tensor_scale)[..., None]
    code = (x.abs()[..., None] - MAGNITUDES).abs().argmin(-1).to(torch.uint8) | ((x < 0).to(torch.uint8) << 3)
    code = code.view(weight.shape[0], -1)
    return code[:, 0::2] | (code[:, 1::2] << 4), scale, tensor_scale


def unpack(packed, scale, tensor_scale):
    """The inverse, [out, in] f32."""
    code = torch.stack([packed & 15, packed >> 4], -1).view(packed.shape[0], -1).long()
    value = MAGNITUDES[code & 7] * torch.where(code >= 8, -1.0, 1.0)
    return (value.view(packed.shape[0], -1, GROUP) * scale.float()[..., None] * tensor_scale).view(packed.shape[0], -1)
