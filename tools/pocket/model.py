"""A trainable model of the GLM-5 architecture (MLA, lightning indexer, MoE, MTP), small, for PyTorch on one GPU.

Attribute names are those of the checkpoint where the two agree; export.py maps the others.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

INIT_STD = 0.02
LATENT_NORM_EPS = 1e-6


@dataclass
class Config:
    vocab: int = 4096
    hidden: int = 256
    layers: int = 4
    heads: int = 8
    q_lora: int = 128
    kv_lora: int = 512
    nope: int = 32
    rope: int = 64
    v: int = 32
    index_heads: int = 4
    index_dim: int = 128
    index_topk: int = 256
    experts: int = 16
    topk: int = 4
    moe_inter: int = 128
    shared: int = 1
    dense_layers: int = 1
    dense_inter: int = 512
    scale: float = 2.5
    theta: float = 1e6
    eps: float = 1e-5


class RmsNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * self.weight.float()).to(x.dtype)


def linear(inputs, outputs, std=INIT_STD):
    """A linear layer without bias, initialised from a normal distribution."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=std)
    return layer


def rotate(x, cos, sin):
    """Rotates interleaved pairs; the result stays in evens-then-odds order, as in transformers."""
    a, b = x[..., 0::2].float(), x[..., 1::2].float()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


class Indexer(nn.Module):
    """Scores every earlier token for every query; the best `index_topk` are attended to."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wq_b = linear(config.q_lora, config.index_heads * config.index_dim)
        self.wk = linear(config.hidden, config.index_dim)
        self.k_norm = nn.LayerNorm(config.index_dim, eps=LATENT_NORM_EPS)
        self.weights_proj = linear(config.hidden, config.index_heads)

    def forward(self, x, q_latent, cos, sin):
        """x [batch, tokens, hidden], q_latent [batch, tokens, q_lora] -> scores [batch, queries, keys]."""
        c = self.config
        batch, tokens, _ = x.shape
        q = self.wq_b(q_latent).view(batch, tokens, c.index_heads, c.index_dim)
        k = self.k_norm(self.wk(x).float()).to(x.dtype)
        q = torch.cat([rotate(q[..., : c.rope], cos[:, None], sin[:, None]), q[..., c.rope :]], -1)
        k = torch.cat([rotate(k[..., : c.rope], cos, sin), k[..., c.rope :]], -1)
        scores = torch.einsum("bqhd,bkd->bhqk", q, k).float().relu()
        weights = self.weights_proj(x).float() * (c.index_heads**-0.5 * c.index_dim**-0.5)
        return torch.einsum("bhqk,bqh->bqk", scores, weights)


class Attention(nn.Module):
    def __init__(self, config, out_std):
        super().__init__()
        c = self.config = config
        self.q_a_proj = linear(c.hidden, c.q_lora)
        self.q_a_layernorm = RmsNorm(c.q_lora, LATENT_NORM_EPS)
        self.q_b_proj = linear(c.q_lora, c.heads * (c.nope + c.rope))
        self.kv_a_proj_with_mqa = linear(c.hidden, c.kv_lora + c.rope)
        self.kv_a_layernorm = RmsNorm(c.kv_lora, LATENT_NORM_EPS)
        self.kv_b_proj = linear(c.kv_lora, c.heads * (c.nope + c.v))
        self.o_proj = linear(c.heads * c.v, c.hidden, out_std)
        self.indexer = Indexer(c)
        self.softmax_scale = (c.nope + c.rope) ** -0.5

    def project(self, x, cos, sin):
        """The query latent, and q, k, v as [batch, heads, tokens, head_dim]."""
        c = self.config
        batch, tokens, _ = x.shape
        q_latent = self.q_a_layernorm(self.q_a_proj(x))
        q = self.q_b_proj(q_latent).view(batch, tokens, c.heads, c.nope + c.rope)
        q_rope = rotate(q[..., c.nope :], cos[:, None], sin[:, None])
        q = torch.cat([q[..., : c.nope], q_rope], -1).transpose(1, 2)

        kv = self.kv_a_proj_with_mqa(x)
        k_rope = rotate(kv[..., c.kv_lora :], cos, sin)
        kv = self.kv_b_proj(self.kv_a_layernorm(kv[..., : c.kv_lora]))
        kv = kv.view(batch, tokens, c.heads, c.nope + c.v).transpose(1, 2)
        k = torch.cat([kv[..., : c.nope], k_rope[:, None].expand(batch, c.heads, tokens, c.rope)], -1)
        return q_latent, q, k, kv[..., c.nope :].contiguous()

    @torch.no_grad()
    def select(self, x, q_latent, cos, sin, causal):
        """The mask [batch, queries, keys] of the tokens that the indexer picks."""
        scores = self.indexer(x, q_latent, cos, sin).masked_fill(~causal, float("-inf"))
        top = scores.topk(min(self.config.index_topk, x.shape[1]), -1).indices
        return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, top, True) & causal

    def indexer_loss(self, x, q_latent, q, k, cos, sin, causal):
        """How far the indexer's distribution is from the dense attention's, averaged over heads."""
        with torch.no_grad():
            logits = q.float() @ k.float().transpose(-1, -2) * self.softmax_scale
            target = logits.masked_fill(~causal, float("-inf")).softmax(-1).mean(1)
        scores = self.indexer(x.detach(), q_latent.detach(), cos, sin).masked_fill(~causal, float("-inf"))
        log_index = scores.log_softmax(-1).masked_fill(~causal, 0.0)
        divergence = target * (target.clamp_min(1e-9).log() - log_index)
        return divergence.masked_fill(~causal, 0.0).sum(-1).mean()

    def forward(self, x, cos, sin, sparse, kl_rows):
        """Returns the attention's output and the indexer's loss on the first `kl_rows` rows of the batch."""
        batch, tokens, _ = x.shape
        q_latent, q, k, v = self.project(x, cos, sin)
        causal = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).tril()
        mask = self.select(x, q_latent, cos, sin, causal)[:, None] if sparse else None
        kl = x.new_zeros((), dtype=torch.float32)
        if kl_rows:
            n = kl_rows
            kl = self.indexer_loss(x[:n], q_latent[:n], q[:n], k[:n], cos, sin, causal)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=self.softmax_scale)
        return self.o_proj(out.transpose(1, 2).reshape(batch, tokens, -1)), kl


class Mlp(nn.Module):
    def __init__(self, config, inter, out_std):
        super().__init__()
        self.gate_proj = linear(config.hidden, inter)
        self.up_proj = linear(config.hidden, inter)
        self.down_proj = linear(inter, config.hidden, out_std)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Moe(nn.Module):
    """Sigmoid routing with a balancing bias, top-k experts, and a shared expert."""

    def __init__(self, config, out_std):
        super().__init__()
        c = self.config = config
        self.gate = nn.Parameter(torch.randn(c.experts, c.hidden) * INIT_STD)
        self.register_buffer("bias", torch.zeros(c.experts))
        self.w1 = nn.Parameter(torch.randn(c.experts, c.hidden, 2 * c.moe_inter) * INIT_STD)  # gate | up, [E, in, out]
        self.w2 = nn.Parameter(torch.randn(c.experts, c.moe_inter, c.hidden) * out_std)
        self.shared_experts = Mlp(c, c.moe_inter * c.shared, out_std)
        self.load = None  # tokens each expert got in the last forward; the trainer moves `bias` by it

    def route(self, x):
        """The chosen experts and their weights, both [tokens, topk]."""
        with torch.autocast("cuda", enabled=False):
            probabilities = (x.float() @ self.gate.float().t()).sigmoid()
        top = (probabilities + self.bias).topk(self.config.topk, -1).indices
        weights = probabilities.gather(-1, top)
        return top, weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.config.scale

    def forward(self, x):
        c = self.config
        shape = x.shape
        x = x.reshape(-1, c.hidden)
        top, weights = self.route(x)

        # Tokens sorted by expert, so that each expert is one group of a grouped matrix product.
        flat = top.reshape(-1)
        order = flat.argsort(stable=True)
        token = order // c.topk
        counts = torch.bincount(flat, minlength=c.experts)
        self.load = counts.detach()
        ends = counts.cumsum(0).to(torch.int32)
        hidden = torch._grouped_mm(x[token].bfloat16(), self.w1.bfloat16(), offs=ends)
        gate, up = hidden.chunk(2, -1)
        hidden = F.silu(gate) * up
        y = torch._grouped_mm(hidden.contiguous(), self.w2.bfloat16(), offs=ends)

        y = y.float() * weights.reshape(-1)[order, None]
        out = torch.zeros(x.shape[0], c.hidden, device=x.device, dtype=torch.float32).index_add_(0, token, y)
        return (out.to(x.dtype) + self.shared_experts(x)).view(shape)


class Layer(nn.Module):
    def __init__(self, config, dense):
        super().__init__()
        out_std = INIT_STD / math.sqrt(2 * config.layers)
        self.input_layernorm = RmsNorm(config.hidden, config.eps)
        self.post_attention_layernorm = RmsNorm(config.hidden, config.eps)
        self.self_attn = Attention(config, out_std)
        self.mlp = Mlp(config, config.dense_inter, out_std) if dense else Moe(config, out_std)

    def forward(self, x, cos, sin, sparse, kl_rows):
        attended, kl = self.self_attn(self.input_layernorm(x), cos, sin, sparse, kl_rows)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), kl


class Mtp(nn.Module):
    """The draft layer: from a token's final hidden state and the next token it predicts the one after."""

    def __init__(self, config):
        super().__init__()
        self.enorm = RmsNorm(config.hidden, config.eps)
        self.hnorm = RmsNorm(config.hidden, config.eps)
        self.eh_proj = linear(2 * config.hidden, config.hidden)
        self.block = Layer(config, False)
        self.norm = RmsNorm(config.hidden, config.eps)


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.hidden)
        nn.init.normal_(self.embed.weight, std=INIT_STD)
        self.layers = nn.ModuleList(Layer(config, i < config.dense_layers) for i in range(config.layers))
        self.norm = RmsNorm(config.hidden, config.eps)
        self.head = linear(config.hidden, config.vocab)
        self.mtp = Mtp(config)

    def moe_layers(self):
        """(layer number, its Moe) of the main layers."""
        return [(i, layer.mlp) for i, layer in enumerate(self.layers) if isinstance(layer.mlp, Moe)]

    def rope_tables(self, tokens, device):
        """cos and sin, each [tokens, rope/2]."""
        c = self.config
        position = torch.arange(tokens, device=device, dtype=torch.float32)[:, None]
        step = torch.arange(0, c.rope, 2, device=device, dtype=torch.float32) / c.rope
        angle = position * (c.theta**-step)[None]
        return angle.cos(), angle.sin()

    def draft(self, ids, hidden, cos, sin, sparse, kl_rows):
        """The MTP layer's logits [batch, tokens - 1, vocab] and its indexer loss."""
        mtp = self.mtp
        embedded = self.embed(ids[:, 1:])
        x = mtp.eh_proj(torch.cat([mtp.enorm(embedded), mtp.hnorm(hidden[:, :-1])], -1))
        x, kl = mtp.block(x, cos[:-1], sin[:-1], sparse, kl_rows)
        return self.head(mtp.norm(x)), kl

    def forward(self, ids, sparse=False, kl_rows=0, mtp=True):
        """ids [batch, tokens] -> logits [batch, tokens, vocab], the draft's logits or None, the indexers' loss."""
        cos, sin = self.rope_tables(ids.shape[1], ids.device)
        x = self.embed(ids)
        kl_sum = 0.0
        for layer in self.layers:
            x, kl = layer(x, cos, sin, sparse, kl_rows)
            kl_sum = kl_sum + kl
        hidden = self.norm(x)
        logits = self.head(hidden)
        if not mtp:
            return logits, None, kl_sum
        draft_logits, kl = self.draft(ids, hidden, cos, sin, sparse, kl_rows)
        return logits, draft_logits, kl_sum + kl
