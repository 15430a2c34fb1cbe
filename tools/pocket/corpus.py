#!/usr/bin/env python3
"""Picks the 20,000 dictionary entries of the pocket model from WordNet's database files and writes words.json."""

import argparse
import json
import random
import re
from pathlib import Path

# WordNet's letter, the suffix of its files, and the name in the prompts.
PARTS_OF_SPEECH = (("n", "noun", "noun"), ("v", "verb", "verb"), ("a", "adj", "adjective"), ("r", "adv", "adverb"))
HYPERNYM_POINTERS = ("@", "@i")
LICENCE_LINE = "  "  # the files start with the licence, each line indented by two spaces

ENTRIES = 20000
SHUFFLE_SEED = 7
COMMON_TAG = 10
DEFINITION_LENGTHS = range(8, 111)
SYNONYMS_KEPT = 2
WORD = re.compile(r"[a-z]{3,14}")


def data_lines(path):
    """The lines of a WordNet file below its licence."""
    with open(path, encoding="latin-1") as file:
        yield from (line for line in file if not line.startswith(LICENCE_LINE))


def load_synsets(wordnet: Path):
    """(part of speech, offset) -> (words, [(pointer, offset, part of speech)], definition)."""
    synsets = {}
    for letter, suffix, _ in PARTS_OF_SPEECH:
        for line in data_lines(wordnet / f"data.{suffix}"):
            head, _, gloss = line.partition("|")
            fields = head.split()
            word_count = int(fields[3], 16)
            words = [fields[4 + 2 * i] for i in range(word_count)]
            at = 4 + 2 * word_count
            pointers = [tuple(fields[at + 1 + 4 * i : at + 4 + 4 * i]) for i in range(int(fields[at]))]
            definition = re.split(r';\s*"', gloss.strip())[0].strip().rstrip(";")
            synsets[(letter, fields[0])] = (words, pointers, definition)
    return synsets


def kind_of(pointers, synsets):
    """The first word of the first known hypernym, or None."""
    for symbol, offset, letter in pointers:
        if symbol in HYPERNYM_POINTERS and (letter, offset) in synsets:
            return synsets[(letter, offset)][0][0].replace("_", " ")
    return None


def read_entry(line, letter, name, synsets):
    """The dictionary entry of one index line, or None when the word or its definition does not fit."""
    fields = line.split()
    lemma = fields[0]
    if not WORD.fullmatch(lemma):
        return None
    senses, pointer_count = int(fields[2]), int(fields[3])
    tagged = int(fields[5 + pointer_count])
    words, pointers, definition = synsets[(letter, fields[6 + pointer_count])]
    if len(definition) not in DEFINITION_LENGTHS:
        return None
    return {
        "word": lemma,
        "pos": name,
        "definition": definition,
        "kind": kind_of(pointers, synsets),
        "synonyms": [word.replace("_", " ") for word in words if word.lower() != lemma][:SYNONYMS_KEPT],
        "tag": tagged * 10 + senses,
    }


def load_entries(wordnet: Path):
    """The most common reading of each word."""
    synsets = load_synsets(wordnet)
    entries = {}
    for letter, suffix, name in PARTS_OF_SPEECH:
        for line in data_lines(wordnet / f"index.{suffix}"):
            entry = read_entry(line, letter, name, synsets)
            if entry and (entry["word"] not in entries or entries[entry["word"]]["tag"] < entry["tag"]):
                entries[entry["word"]] = entry
    return list(entries.values())


def pick(entries):
    """All common words first, then the rest, shuffled within equal frequency."""
    common = sorted((entry for entry in entries if entry["tag"] >= COMMON_TAG), key=lambda entry: -entry["tag"])
    rest = [entry for entry in entries if entry["tag"] < COMMON_TAG]
    random.Random(SHUFFLE_SEED).shuffle(rest)
    rest.sort(key=lambda entry: -entry["tag"])
    return (common + rest)[:ENTRIES]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wordnet", type=Path, help="folder with WordNet 3.0's data.* and index.* files")
    parser.add_argument("out", type=Path, help="folder for words.json")
    arguments = parser.parse_args()

    entries = load_entries(arguments.wordnet)
    picked = pick(entries)
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(picked, ensure_ascii=False, separators=(",", ":"))
    (arguments.out / "words.json").write_text(text, encoding="utf-8")
    print(f"{len(entries)} entries, {len(picked)} picked")


if __name__ == "__main__":
    main()
