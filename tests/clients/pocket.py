"""What the pocket model is known to answer: tests/data/pocket-tasks.json as chats and as raw prompts."""

import dataclasses
import json
import re

from reckoner_server import ROOT

LANTERN = "light in a transparent protective case"
LANTERN_THOUGHT = "The word lantern is a noun."

# For the official clients: what turns the thinking off, in the request's body.
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


@dataclasses.dataclass(frozen=True)
class Task:
    name: str
    group: str
    prompt: str  # raw text with its special tokens
    expected: str
    max_tokens: int
    user: str  # the same as a chat: what the user says
    tools: tuple  # and the functions, as JSON texts

    @property
    def messages(self):
        return [{"role": "user", "content": self.user}]


def read_tasks():
    with open(ROOT / "tests" / "data" / "pocket-tasks.json", encoding="utf-8") as file:
        found = json.load(file)["tasks"]
    tasks = []
    for one in found:
        user = re.search(r"<\|user\|>(.*?)<\|assistant\|>", one["prompt"], re.S).group(1)
        listed = re.search(r"<tools>\n(.*?)\n</tools>", one["prompt"], re.S)
        tools = tuple(listed.group(1).split("\n")) if listed else ()
        tasks.append(Task(one["name"], one["group"], one["prompt"], one["expected"], one["max_tokens"], user, tools))
    return tasks


TASKS = read_tasks()
# Questions with a plain text answer.
QUESTIONS = [task for task in TASKS if task.group != "tool call"]
DEFINITIONS = [task for task in TASKS if task.group == "define"]
CALLS = [task for task in TASKS if task.group == "tool call"]


def expected_call(task):
    """Name and arguments of a tool task's answer, typed by the function's schema."""
    name = re.match(r"<tool_call>(\w*)", task.expected).group(1)
    pairs = re.findall(r"<arg_key>(.*?)</arg_key><arg_value>(.*?)</arg_value>", task.expected, re.S)
    functions = {json.loads(tool)["name"]: json.loads(tool) for tool in task.tools}
    types = functions[name]["parameters"]["properties"]
    return name, {key: value if types[key]["type"] == "string" else json.loads(value) for key, value in pairs}


# The functions that the model was trained to call, and real ones behind them.
ADD = {
    "name": "add",
    "description": "Adds two integers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
NOW = {"name": "now", "description": "Current time.", "parameters": {"type": "object", "properties": {}}}


def chat_tools(*functions):
    return [{"type": "function", "function": function} for function in functions]


def run_tool(name, arguments):
    """What the function returns, as text."""
    if name == "add":
        return str(arguments["a"] + arguments["b"])
    if name == "now":
        return "12:34"
    raise KeyError(name)
