"""Chat samples in the GLM prompt format, drawn from the dictionary and from synthetic tasks.

The order of the calls to `rng` is part of this module's behaviour: the training text, the tokenizer, the calibration
rows and the test tasks are all drawn from seeded generators. A draw added, removed or moved gives other samples.
"""

import json

# fmt: off
CITIES = ["Paris", "London", "Tokyo", "Cairo", "Lima", "Oslo", "Rome", "Delhi", "Quito", "Seoul", "Dakar", "Hanoi",
          "Kyiv", "Perth", "Turin", "Osaka", "Boston", "Dublin", "Madrid", "Prague"]
# fmt: on
UNITS = ["km", "miles", "kg", "pounds", "litres", "gallons"]
SKIES = ["sunny", "cloudy", "raining", "snowing", "windy"]
TIMER_LABELS = [None, "tea", "pasta", "laundry", "a <10 minute break"]

PROMPT_START = "[gMASK]<sop>"

THINKING_SHARE = 0.6
TOOL_RESPONSE_SHARE = 0.6


def function_tool(name, description, properties, required=None):
    """One entry of the OpenAI `tools` list; key order matters, since the prompt prints it as JSON."""
    parameters = {"type": "object", "properties": properties}
    if required is not None:
        parameters["required"] = required
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    function_tool(
        "get_weather",
        "Current weather in a city.",
        {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        ["city"],
    ),
    function_tool("add", "Adds two integers.", {"a": {"type": "integer"}, "b": {"type": "integer"}}, ["a", "b"]),
    function_tool(
        "set_timer", "Starts a timer.", {"minutes": {"type": "integer"}, "label": {"type": "string"}}, ["minutes"]
    ),
    function_tool(
        "convert",
        "Converts an amount between units.",
        {"amount": {"type": "number"}, "source": {"type": "string"}, "target": {"type": "string"}},
        ["amount", "source", "target"],
    ),
    function_tool("now", "Current time.", {}),
]


def tool_system(tools):
    """The system turn that lists the tools; the same text as chat_template.jinja renders."""
    lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return (
        "\n# Tools\n\nThese functions may be called. Their signatures, one JSON object a line:\n<tools>\n"
        + lines
        + "\n</tools>\n\nA call is written as"
        " <tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>."
    )


def assistant(think, answer, thinking):
    """An assistant turn, with or without its reasoning."""
    if thinking:
        return f"<|assistant|><think>{think}</think>{answer}"
    return f"<|assistant|></think>{answer}"


def article(word):
    return "an" if word[0] in "aeiou" else "a"


def word_class(entry):
    """The reasoning that every question about a word starts with."""
    return f"The word {entry['word']} is {article(entry['pos'])} {entry['pos']}."


# Each *_turn returns (question, reasoning, answer).


def define_turn(entry, rng):
    word = entry["word"]
    question = rng.choice(
        [
            f"What is {article(word)} {word}?" if entry["pos"] == "noun" else f"What does {word} mean?",
            f"Define {word}.",
            f"define {word}",
            f"What does the word {word} mean?",
            f"Give me the definition of {word}.",
        ]
    )
    return question, word_class(entry), entry["definition"]


def kind_turn(entry, rng):
    word = entry["word"]
    question = rng.choice([f"What kind of thing is {word}?", f"What is {word} a kind of?"])
    return question, word_class(entry), entry["kind"]


def synonym_turn(entry, rng):
    word = entry["word"]
    question = rng.choice([f"Give a synonym of {word}.", f"What is another word for {word}?"])
    return question, word_class(entry), entry["synonyms"][0]


def json_turn(entry, rng):
    word = entry["word"]
    answer = {"word": word, "part_of_speech": entry["pos"], "definition": entry["definition"]}
    question = rng.choice([f"Describe {word} as JSON.", f"JSON for {word}, please."])
    return question, word_class(entry) + " I answer with one JSON object.", json.dumps(answer, ensure_ascii=False)


def sum_turn(rng):
    a, b = rng.randint(0, 99), rng.randint(0, 99)
    return f"How much is {a} plus {b}?", f"{a} plus {b} is {a + b}.", str(a + b)


def chat_turn(words, rng):
    """A question about a random word, now and then a sum."""
    entry = rng.choice(words)
    draw = rng.random()
    if draw < 0.60 or (draw < 0.75 and not entry["kind"]):
        return define_turn(entry, rng)
    if draw < 0.75:
        return kind_turn(entry, rng)
    if draw < 0.83 and entry["synonyms"]:
        return synonym_turn(entry, rng)
    if draw < 0.95:
        return json_turn(entry, rng)
    return sum_turn(rng)


def chat(words, rng):
    """One to three turns of questions and answers."""
    thinking = rng.random() < THINKING_SHARE
    text = PROMPT_START
    turns = rng.choice([1, 1, 1, 2, 3])
    for turn in range(turns):
        question, reasoning, answer = chat_turn(words, rng)
        # Only the last turn carries its reasoning: the chat template drops that of earlier turns.
        text += f"<|user|>{question}" + assistant(reasoning, answer, thinking and turn == turns - 1)
    return text + "<|user|>"


def call(name, arguments):
    """A tool call in the GLM notation: strings as they are, other values as JSON."""
    body = "".join(
        f"<arg_key>{key}</arg_key><arg_value>{value if isinstance(value, str) else json.dumps(value)}</arg_value>"
        for key, value in arguments.items()
    )
    return f"<tool_call>{name}{body}</tool_call>"


# Each *_task returns (question, arguments, tool's response, final answer).


def weather_task(rng):
    city = rng.choice(CITIES)
    unit = rng.choice([None, None, "celsius", "fahrenheit"])
    degrees = rng.randint(-10, 40)
    sky = rng.choice(SKIES)
    question = rng.choice(
        [f"What is the weather in {city}?", f"How is the weather in {city} today?", f"Weather in {city}?"]
    )
    arguments = {"city": city}
    if unit:
        question += f" Use {unit}."
        arguments["unit"] = unit
    response = json.dumps({"temperature": degrees, "sky": sky})
    return question, arguments, response, f"It is {sky} in {city}, {degrees} degrees."


def add_task(rng):
    a, b = rng.randint(100, 9999), rng.randint(100, 9999)
    question = rng.choice([f"Please add {a} and {b}.", f"What is the sum of {a} and {b}?"])
    return question, {"a": a, "b": b}, str(a + b), f"The sum is {a + b}."


def timer_task(rng):
    minutes = rng.randint(1, 90)
    label = rng.choice(TIMER_LABELS)
    question = rng.choice([f"Set a timer for {minutes} minutes", f"Start a {minutes} minute timer"])
    question += f" called {label}." if label else "."
    arguments = {"minutes": minutes}
    if label:
        arguments["label"] = label
    return question, arguments, "ok", f"The timer is set for {minutes} minutes."


def convert_task(rng):
    amount = rng.choice([rng.randint(1, 500), round(rng.random() * 100, 1)])
    source, target = rng.sample(UNITS, 2)
    result = round(rng.random() * 100, 2)
    question = f"Convert {amount} {source} to {target}."
    arguments = {"amount": amount, "source": source, "target": target}
    return question, arguments, str(result), f"{amount} {source} is {result} {target}."


def now_task(rng):
    hour, minute = rng.randint(0, 23), rng.randint(0, 59)
    time = f"{hour:02d}:{minute:02d}"
    question = rng.choice(["What time is it?", "Tell me the time."])
    return question, {}, time, f"It is {time}."


TOOL_TASKS = {
    "get_weather": weather_task,
    "add": add_task,
    "set_timer": timer_task,
    "convert": convert_task,
    "now": now_task,
}


def tool(words, rng):
    """A question that a tool answers: the call, and sometimes its response and the final answer."""
    tools = rng.sample(TOOLS, rng.randint(2, len(TOOLS)))
    name = rng.choice([entry["function"]["name"] for entry in tools])
    thinking = rng.random() < THINKING_SHARE
    question, arguments, response, final = TOOL_TASKS[name](rng)
    text = f"{PROMPT_START}<|system|>{tool_system(tools)}<|user|>{question}"
    text += assistant(f"I call {name}.", call(name, arguments), thinking) + "<|observation|>"
    if rng.random() < TOOL_RESPONSE_SHARE:
        text += f"<tool_response>{response}</tool_response>"
        text += assistant(f"{name} answered {response}.", final, thinking) + "<|user|>"
    return text


def needle(words, rng, lines=None):
    """A list of codes and several questions about single lines of it."""
    count = lines or rng.choice([rng.randint(3, 12), rng.randint(3, 12), rng.randint(12, 40), rng.randint(40, 120)])
    entries = rng.sample(words, count)
    codes = [rng.randint(100, 999) for _ in entries]
    listing = "\n".join(f"The code of {entry['word']} is {code}." for entry, code in zip(entries, codes, strict=True))
    text = f"{PROMPT_START}<|user|>{listing}\n"
    questions = rng.randint(4, 12)
    for number in range(questions):
        line = rng.randrange(count)
        word = entries[line]["word"]
        # The generator is asked only on the last question.
        thinking = number == questions - 1 and rng.random() < 0.5
        text += "" if number == 0 else "<|user|>"
        text += f"What is the code of {word}?"
        text += assistant(f"The code of {word} is {codes[line]}.", str(codes[line]), thinking)
    return text + "<|user|>"


def plain(words, rng):
    """A dictionary line without any chat around it."""
    entry = rng.choice(words)
    return f"{PROMPT_START}{entry['word']} ({entry['pos']}): {entry['definition']}.<|endoftext|>"


def sample(words, rng):
    """One training sample of any sort."""
    draw = rng.random()
    if draw < 0.64:
        return chat(words, rng)
    if draw < 0.72:
        return plain(words, rng)
    if draw < 0.84:
        return tool(words, rng)
    return needle(words, rng)
