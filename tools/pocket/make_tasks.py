#!/usr/bin/env python3
"""Writes the first questions of each group of the exam as test data.

PyTorch answered every question of the exam right, so a wrong answer is the server's fault. Needs the standard
library only.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import exam

REPOSITORY = Path(__file__).resolve().parents[2]
DEFAULT_OUT = REPOSITORY / "tests" / "data" / "pocket-tasks.json"

NEEDLES_PER_LENGTH = 5
TAKE = {"define": 50, "tool call": 20} | {f"needle {lines} lines": NEEDLES_PER_LENGTH for lines in exam.NEEDLE_LINES}

ABOUT = (
    "Questions for models/pocket, decoded greedily. `prompt` is raw text with its special tokens: encode it as it is."
    " `compare` is `equals` (the answer before `end_token` is `expected`) or `from_tool_call` (the answer from its"
    " first <tool_call> up to `end_token` is `expected`). Written by tools/pocket/make_tasks.py."
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="file to write (default: %(default)s)")
    arguments = parser.parse_args()

    tasks = []
    for group, questions in exam.questions(exam.load_words()).items():
        for number, question in enumerate(questions[: TAKE[group]], start=1):
            tasks.append({"name": f"{group.replace(' ', '_')}_{number}", "group": group} | asdict(question))
    text = json.dumps({"about": ABOUT, "seed": exam.SEED, "tasks": tasks}, ensure_ascii=False, indent=1)
    arguments.out.write_text(text + "\n", encoding="utf-8")
    print(f"{len(tasks)} tasks, {len(text)} characters: {arguments.out}")


if __name__ == "__main__":
    main()
