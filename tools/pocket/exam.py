"""The questions that the trained model is examined on; export.py asks them, make_tasks.py writes some down as tests."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import tasks

WORDS_FILE = Path(__file__).resolve().parent / "words.json"

SEED = 99
DEFINITIONS = 400
TOOL_CALLS = 200
NEEDLES = 100
NEEDLE_LINES = (10, 40, 80, 110)

THINK = "<|assistant|><think>"
NO_THINK = "<|assistant|></think>"

# How an answer is compared with `expected`.
EQUALS = "equals"  # the whole answer up to its end token
FROM_TOOL_CALL = "from_tool_call"  # the answer from its first <tool_call> up to its end token


@dataclass(frozen=True)
class Question:
    """A prompt as raw text with its special tokens, and the greedy continuation that is right."""

    prompt: str
    expected: str
    compare: str
    end_token: str
    max_tokens: int

    def accepts(self, answer: str) -> bool:
        """Whether a decoded continuation, special tokens included, is right."""
        if self.compare == FROM_TOOL_CALL:
            return answer[answer.find("<tool_call>") :].replace(self.end_token, "") == self.expected
        return answer == self.expected + self.end_token


def load_words():
    return json.loads(WORDS_FILE.read_text(encoding="utf-8"))


def definition_questions(words, rng):
    return [
        Question(
            prompt=f"{tasks.PROMPT_START}<|user|>Define {entry['word']}.{NO_THINK}",
            expected=entry["definition"],
            compare=EQUALS,
            end_token="<|user|>",
            max_tokens=40,
        )
        for entry in rng.sample(words, DEFINITIONS)
    ]


def tool_question(words, rng):
    """The first turn of a tool sample; it thinks first where the sample does."""
    sample = tasks.tool(words, rng)
    answer_at = sample.find("<|assistant|>")
    answer = sample[answer_at : sample.find("<|observation|>")]
    return Question(
        prompt=sample[:answer_at] + (THINK if answer.startswith(THINK) else NO_THINK),
        expected=answer[answer.find("<tool_call>") :],
        compare=FROM_TOOL_CALL,
        end_token="<|observation|>",
        max_tokens=70,
    )


def needle_question(words, rng, lines):
    """The first question of a needle sample, which never thinks."""
    sample = tasks.needle(words, rng, lines)
    answer_at = sample.find("<|assistant|>")
    answer = sample[answer_at + len(NO_THINK) :]
    return Question(
        prompt=sample[:answer_at] + NO_THINK,
        expected=answer[: answer.find("<|user|>")],
        compare=EQUALS,
        end_token="<|user|>",
        max_tokens=6,
    )


def questions(words, rng=None):
    """Every question by group, in a fixed order. Pass an `rng` seeded with SEED to draw on from where they end."""
    rng = rng or random.Random(SEED)
    groups = {
        "define": definition_questions(words, rng),
        "tool call": [tool_question(words, rng) for _ in range(TOOL_CALLS)],
    }
    for lines in NEEDLE_LINES:
        groups[f"needle {lines} lines"] = [needle_question(words, rng, lines) for _ in range(NEEDLES)]
    return groups
