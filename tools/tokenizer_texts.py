"""The texts that tools/record_tokenizers.py records the tokens of, and the words that its small vocabulary is trained on."""

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
    "accents": "naïve café Ångström Größe ÆØÅ İstanbul ıssız e\u0301te\u0301 \u0301a n\u0303 A\u030a ﬁne",
    "emoji": "👩‍👩‍👧‍👦 family 🏳️‍🌈 flag 🇩🇪🇫🇷 👍🏽 ok 1️⃣ ☕️ 😀😀😀x🫠",
    "digits": "1 12 123 1234 12345 1234567 3.14159 1,000,000 0x1F 2²³ ½ Ⅷ ①② 1٢3 v1.2.3-rc4 10:30",
    "spaces": "a  b   c    d\te\t\tf \t g\u00a0h\u3000i\u2003j  \n  k\n\n\nl \n m   ",
    "line ends": "one\r\ntwo\rthree\n\r\nfour  \r\n  five\u2028six\u2029seven\u0085eight\x0bnine\x0cten\n",
    "only spaces": "        ",
    "python": 'def f(x: int) -> str:\n    """Doc."""\n    if x != 0 and x<=10:\n\treturn f"{x:>3}" # ok\n\n\nclass A(B): pass\n',
    "c++": "#include <vector>\ntemplate <class T> auto g(T&& t) { return std::move(t)->h()[0] ? 1u : 0x7fULL; }\n// 漢字 comment\n",
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
    "tool call": '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}'
    "<|tool_call_end|><|tool_calls_section_end|>",
    "no special token": "<|im_nobody|> <|im_end| > |im_end|> [BOS ] [MASK]",
}
MORE_DEEPSEEK_TEXTS = {
    "special tokens": "<｜begin▁of▁sentence｜>Be brief.<｜User｜>it's 漢字<｜Assistant｜><think>\nHm</think>Yes<｜end▁of▁sentence｜>",
    "tool call": '\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "no special token": "<|User|> <｜Nobody｜> <｜User ｜> <think >",
}

# DeepSeek-V3's template takes the arguments of a call as the text that a client sends.
DEEPSEEK_CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather, and the time? 漢字"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"type": "function", "function": {"name": "weather", "arguments": '{"city":"Köln", "days": 2}'}},
            {"type": "function", "function": {"name": "now", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "content": "12 °C"},
    {"role": "tool", "content": "noon"},
    {"role": "assistant", "content": "Mild; noon."},
    {"role": "user", "content": "Thanks."},
]

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
)
TRAINING_HAN = "今天天气很好我们去公园散步吧他说明天见中国日本語漢字文学生大小上下左右東西南北人口手足目耳山川水火木金土年月日時分秒"
