#!/usr/bin/env python3
"""Sends every pocket task to a running server at once, and compares the answers: greedy, so each must be exactly right.

usage: tools/pocket/ask_server.py http://127.0.0.1:8000 [TASKS.json]
"""

import json
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TASKS = Path(__file__).resolve().parents[2] / "tests/data/pocket-tasks.json"


def answer(url, task):
    body = {
        "prompt": task["prompt"],
        "max_tokens": task["max_tokens"],
        "temperature": 0,
        "stop": [task["end_token"]],
        "skip_special_tokens": False,
    }
    request = urllib.request.Request(
        url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            text = json.load(response)["choices"][0]["text"]
    except urllib.error.HTTPError as error:
        return f"status {error.code}: {error.read().decode(errors='replace')}"
    text = text.split(task["end_token"])[0]
    return text[text.find("<tool_call>") :] if task["compare"] == "from_tool_call" else text


def main():
    url = sys.argv[1].rstrip("/")
    tasks = json.loads(Path(sys.argv[2] if len(sys.argv) > 2 else TASKS).read_text(encoding="utf-8"))["tasks"]
    with ThreadPoolExecutor(max_workers=16) as threads:
        answers = list(threads.map(lambda task: answer(url, task), tasks))
    right = 0
    for task, found in zip(tasks, answers, strict=True):
        if found == task["expected"]:
            right += 1
        else:
            print(f"{task['name']}: expected {task['expected']!r}, found {found!r}")
    print(f"pocket tasks: {right} of {len(tasks)} right")
    return 0 if right == len(tasks) else 1


if __name__ == "__main__":
    sys.exit(main())
