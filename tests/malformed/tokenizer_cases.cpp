// tokenizer.json, tokenizer_config.json and chat templates.
#include "cases.h"

namespace reckoner::malformed {
namespace {

constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kTemplate = "chat_template.jinja";

const Case kCases[] = {
    {"Absent", Base::bf16, [](const ModelCopy& m) { m.remove(kTokenizer); }, R"(
DIR: expected tokenizer.json (or tiktoken.model, or vocab.json with merges.txt), found none
  what to do: copy tokenizer.json from where the model was published into this folder)"},

    {"Empty", Base::bf16, [](const ModelCopy& m) { m.write(kTokenizer, ""); }, R"(
DIR/tokenizer.json: EOF while parsing a value at line 1 column 0
  what to do: copy the model's tokenizer files again from where it was published, and check that the download is complete)"},

    {"Truncated", Base::bf16, [](const ModelCopy& m) { m.resize(kTokenizer, -200'000); }, R"(
DIR/tokenizer.json: EOF while parsing an object at line 2748 column 15
  what to do: copy the model's tokenizer files again from where it was published, and check that the download is complete)"},

    {"GitLfsPointer", Base::bf16,
     [](const ModelCopy& m) { m.write(kTokenizer, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 254485\n"); }, R"(
DIR/tokenizer.json: found a Git LFS pointer: the file's content was not downloaded
  what to do: run `git lfs pull` in that folder, or download this file again)"},

    {"TemplateIsAGitLfsPointer", Base::bf16,
     [](const ModelCopy& m) { m.write(kTemplate, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 2248\n"); }, R"(
DIR/chat_template.jinja: found a Git LFS pointer: the file's content was not downloaded
  what to do: run `git lfs pull` in that folder, or download this file again)"},

    {"AList", Base::bf16, [](const ModelCopy& m) { m.write(kTokenizer, "[1, 2]"); }, R"(
DIR/tokenizer.json: Failed to load tokenizer: invalid type: sequence, expected struct Tokenizer at line 1 column 1
  what to do: copy the model's tokenizer files again from where it was published, and check that the download is complete)"},

    {"WithoutModel", Base::bf16, [](const ModelCopy& m) { m.write(kTokenizer, R"({"version": "1.0"})"); }, R"(
DIR/tokenizer.json: Failed to load tokenizer: Model missing. at line 1 column 18
  what to do: copy the model's tokenizer files again from where it was published, and check that the download is complete)"},

    {"ModelUnknown", Base::bf16,
     [](const ModelCopy& m) { m.write(kTokenizer, R"({"version": "1.0", "model": {"type": "Nonesuch", "vocab": {"a": 0}}})"); }, R"(
DIR/tokenizer.json: Failed to load tokenizer: data did not match any variant of untagged enum ModelUntagged at line 1 column 68
  what to do: copy the model's tokenizer files again from where it was published, and check that the download is complete)"},

    {"VocabularyIsText", Base::bf16,
     [](const ModelCopy& m) { m.write(kTokenizer, R"({"version": "1.0", "model": {"type": "BPE", "vocab": "a b c", "merges": []}})"); },
     R"(
DIR/tokenizer.json: Failed to load tokenizer: invalid type: string "a b c", expected a map at line 1 column 76
  what to do: copy the model's tokenizer files again from where it was published, and check that the download is complete)"},

    {"IdAbsurd", Base::bf16,
     [](const ModelCopy& m) {
       m.write(kTokenizer, R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 4294967295}, "merges": []}})");
     },
     R"(
DIR/tokenizer.json: the id of token "a" is 4294967295; ids up to 16777215 are expected
  what to do: copy the model's tokenizer files again from where it was published, and check that the download is complete)"},

    {"MergeOfNoTokens", Base::bf16,
     [](const ModelCopy& m) {
       m.write(kTokenizer, R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}})");
     },
     R"(
DIR/tokenizer.json: Failed to load tokenizer: Token `b` out of vocabulary at line 1 column 82
  what to do: copy the model's tokenizer files again from where it was published, and check that the download is complete)"},

    {"ConfigNotJson", Base::bf16, [](const ModelCopy& m) { m.write(kConfig, R"({"eos_token": )"); }, R"(
DIR/tokenizer_config.json: EOF while parsing a value at line 1 column 14
  what to do: copy the named file again from where the model was published, and check that the download is complete)"},

    {"ConfigIsAList", Base::bf16, [](const ModelCopy& m) { m.write(kConfig, "[]"); }, R"(
DIR/tokenizer_config.json: expected a JSON object
  what to do: copy the named file again from where the model was published, and check that the download is complete)"},

    {"TemplateWithASyntaxError", Base::bf16,
     [](const ModelCopy& m) { m.write(kTemplate, "[gMASK]<sop>\n{% for message in messages %}\n{{ message.content }\n{% endfor %}"); },
     R"(
syntax error: unexpected `}`, expected end of variable block (in DIR/chat_template.jinja:3)
  what to do: see the named line of the template: it either refuses this conversation, or needs a fix (a chat_template.jinja in the model folder takes precedence over tokenizer_config.json))"},

    {"TemplateNeverClosed", Base::bf16,
     [](const ModelCopy& m) { m.write(kTemplate, "{% for message in messages %}{{ message.content }}"); }, R"(
syntax error: unexpected end of input, expected end of block (in DIR/chat_template.jinja:1)
  what to do: see the named line of the template: it either refuses this conversation, or needs a fix (a chat_template.jinja in the model folder takes precedence over tokenizer_config.json))"},

    {"TemplateInTheConfigWithASyntaxError", Base::bf16,
     [](const ModelCopy& m) {
       m.remove(kTemplate);
       m.write(kConfig, R"({"chat_template": "{% if messages %}"})");
     },
     R"(
syntax error: unexpected end of input, expected end of block (in chat_template of DIR/tokenizer_config.json:1)
  what to do: see the named line of the template: it either refuses this conversation, or needs a fix (a chat_template.jinja in the model folder takes precedence over tokenizer_config.json))"},

    {"TemplateNotUtf8", Base::bf16, [](const ModelCopy& m) { m.write(kTemplate, "{{ messages }}\xff\xfe"); }, R"(
DIR/chat_template.jinja: stream did not contain valid UTF-8
  what to do: see the named line of the template: it either refuses this conversation, or needs a fix (a chat_template.jinja in the model folder takes precedence over tokenizer_config.json))"},
};

}  // namespace

std::span<const Case> tokenizer_cases() { return kCases; }

}  // namespace reckoner::malformed
