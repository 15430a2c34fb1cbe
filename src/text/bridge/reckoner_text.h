/* The C border of the Rust text stack (src/lib.rs beside this file): tokenizers, chat templates, incremental decoding,
 * grammars.
 *
 * Rules that hold for every function:
 *  - Text goes both ways as UTF-8 with its length in bytes; nothing is null-terminated.
 *  - Functions that can fail give a ReckonerTextCode. On any code but RECKONER_TEXT_OK, `*error` holds a text for a
 *    person and the outputs are untouched; on OK the outputs are set and `*error` is untouched. Both are the caller's
 *    to free with the functions below.
 *  - No panic and no exception crosses this border: a panic becomes RECKONER_TEXT_INTERNAL with the panic's text.
 *  - A tokenizer and grammars may be used by any number of threads at once; a stream and a grammar by one at a time.
 *    Each keeps what it needs of what it came from alive.
 *  - Nothing here opens a network connection. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ReckonerTextTokenizer ReckonerTextTokenizer;
typedef struct ReckonerTextStream ReckonerTextStream;
typedef struct ReckonerTextGrammars ReckonerTextGrammars;
typedef struct ReckonerTextGrammar ReckonerTextGrammar;

/* What a failed call was about. */
typedef enum ReckonerTextCode {
  RECKONER_TEXT_OK = 0,
  RECKONER_TEXT_ARGUMENT = 1,       /* the call: text that is not UTF-8, JSON that does not parse, an unknown id */
  RECKONER_TEXT_TOKENIZER_FILE = 2, /* the tokenizer file: absent, damaged, of an unknown kind */
  RECKONER_TEXT_CONFIG_FILE = 3,    /* tokenizer_config.json or config.json */
  RECKONER_TEXT_TEMPLATE = 4,       /* the chat template; the text carries file and line where one is known */
  RECKONER_TEXT_INTERNAL = 5        /* a bug on the other side of this border */
} ReckonerTextCode;

/* Borrowed bytes. `data` may be null when `size_bytes` is 0. */
typedef struct ReckonerTextSlice {
  const char* data;
  size_t size_bytes;
} ReckonerTextSlice;

/* Bytes that the caller frees with reckoner_text_free_bytes. */
typedef struct ReckonerTextBytes {
  char* data;
  size_t size_bytes;
} ReckonerTextBytes;

/* Token ids that the caller frees with reckoner_text_free_ids. */
typedef struct ReckonerTextIds {
  uint32_t* data;
  size_t count;
} ReckonerTextIds;

/* One step of a stream. */
typedef struct ReckonerTextStep {
  ReckonerTextBytes text; /* final text; empty while a character or a stop string may still be completed */
  int64_t stop_index;     /* which stop string ended the stream, by its place in the list; -1: none has */
} ReckonerTextStep;

/* What a chat template is given. `tools_json` and `kwargs_json` may be empty. */
typedef struct ReckonerTextPrompt {
  ReckonerTextSlice messages_json; /* array of messages as in OpenAI's chat API */
  ReckonerTextSlice tools_json;    /* array of tools as in OpenAI's chat API */
  ReckonerTextSlice kwargs_json;   /* object: further variables of the template, e.g. {"enable_thinking": false} */
  int32_t add_generation_prompt;   /* 0 or 1 */
} ReckonerTextPrompt;

void reckoner_text_free_bytes(ReckonerTextBytes bytes);
void reckoner_text_free_ids(ReckonerTextIds ids);
void reckoner_text_free_tokenizer(ReckonerTextTokenizer* tokenizer); /* null is fine */
void reckoner_text_free_stream(ReckonerTextStream* stream);          /* null is fine */
void reckoner_text_free_grammars(ReckonerTextGrammars* grammars);    /* null is fine */
void reckoner_text_free_grammar(ReckonerTextGrammar* grammar);       /* null is fine */

/* Loads the tokenizer of a model folder: tokenizer.json, or tiktoken.model (Kimi's only), or vocab.json with merges.txt.
 * The chat template, if any, is chat_template.jinja, else that of tokenizer_config.json. Without one, a config.json that
 * says DeepSeek-V3.2 has prompts encoded as that model's own program does. */
ReckonerTextCode reckoner_text_load(ReckonerTextSlice folder, ReckonerTextTokenizer** tokenizer, ReckonerTextBytes* error);

/* Loads the contents of a tokenizer.json and, unless empty, of a chat template. */
ReckonerTextCode reckoner_text_load_from_memory(ReckonerTextSlice tokenizer_json, ReckonerTextSlice chat_template,
                                                ReckonerTextTokenizer** tokenizer, ReckonerTextBytes* error);

/* Text to ids. Special tokens written in the text become their ids. `add_special_tokens` (0 or 1) adds what the
 * tokenizer puts around a text (e.g. a beginning-of-text token); a rendered chat template has those already. */
ReckonerTextCode reckoner_text_encode(const ReckonerTextTokenizer* tokenizer, ReckonerTextSlice text, int32_t add_special_tokens,
                                      ReckonerTextIds* ids, ReckonerTextBytes* error);

/* Ids to text. Bytes that are not UTF-8 become U+FFFD. `skip_special_tokens` is 0 or 1. */
ReckonerTextCode reckoner_text_decode(const ReckonerTextTokenizer* tokenizer, const uint32_t* ids, size_t count,
                                      int32_t skip_special_tokens, ReckonerTextBytes* text, ReckonerTextBytes* error);

/* The bytes that one id stands for, which need not be whole characters. */
ReckonerTextCode reckoner_text_piece(const ReckonerTextTokenizer* tokenizer, uint32_t id, ReckonerTextBytes* bytes,
                                     ReckonerTextBytes* error);

/* The id of a token by its string as the vocabulary spells it. `*found` becomes 0 or 1. */
ReckonerTextCode reckoner_text_token_id(const ReckonerTextTokenizer* tokenizer, ReckonerTextSlice token, uint32_t* id, int32_t* found,
                                        ReckonerTextBytes* error);

/* One more than the largest id, added tokens included. */
size_t reckoner_text_vocab_size(const ReckonerTextTokenizer* tokenizer);
/* 1 for a token that was added to the vocabulary proper, such as <|user|>. */
int32_t reckoner_text_is_added(const ReckonerTextTokenizer* tokenizer, uint32_t id);
/* Tokens of the vocabulary proper, without the added ones. */
size_t reckoner_text_base_vocab_size(const ReckonerTextTokenizer* tokenizer);

/* A token that tokenizer_config.json names: `which` is 0 for bos_token, 1 for eos_token. `*found` becomes 0 or 1; `*token`
 * is set, for the caller to free, only with 1. */
ReckonerTextCode reckoner_text_config_token(const ReckonerTextTokenizer* tokenizer, int32_t which, ReckonerTextBytes* token, int32_t* found,
                                            ReckonerTextBytes* error);

/* What prompts are made with: 0 nothing, 1 a chat template, 2 the model's own encoding. */
int32_t reckoner_text_prompt_format(const ReckonerTextTokenizer* tokenizer);
/* The name of that template or encoding, for a person; empty for none. */
ReckonerTextCode reckoner_text_prompt_source(const ReckonerTextTokenizer* tokenizer, ReckonerTextBytes* name, ReckonerTextBytes* error);

/* The text of the chat template; empty if there is none. */
ReckonerTextCode reckoner_text_chat_template(const ReckonerTextTokenizer* tokenizer, ReckonerTextBytes* text, ReckonerTextBytes* error);

/* Renders the chat template, or the model's own encoding. Tool call arguments that are a JSON text of an object become that object. */
ReckonerTextCode reckoner_text_render(const ReckonerTextTokenizer* tokenizer, const ReckonerTextPrompt* prompt, ReckonerTextBytes* text,
                                      ReckonerTextBytes* error);

/* Opens a stream. Stop strings must not be empty; neither they nor what follows them is given out. */
ReckonerTextCode reckoner_text_open_stream(const ReckonerTextTokenizer* tokenizer, const ReckonerTextSlice* stop_strings, size_t stop_count,
                                           int32_t skip_special_tokens, ReckonerTextStream** stream, ReckonerTextBytes* error);

/* Takes the next id. Once a stop string has been found every further step is empty and names it again. */
ReckonerTextCode reckoner_text_push(ReckonerTextStream* stream, uint32_t id, ReckonerTextStep* step, ReckonerTextBytes* error);

/* Ends the stream: gives the text that was held back, with U+FFFD for half a character. */
ReckonerTextCode reckoner_text_finish(ReckonerTextStream* stream, ReckonerTextStep* step, ReckonerTextBytes* error);

/* What grammars need of a tokenizer. `vocab_size` is the width of the model's logits, at least one of whose ids ends a text. */
ReckonerTextCode reckoner_text_open_grammars(const ReckonerTextTokenizer* tokenizer, const uint32_t* eos_ids, size_t eos_count,
                                             size_t vocab_size, ReckonerTextGrammars** grammars, ReckonerTextBytes* error);

/* Compiles a grammar. `kind`: 0 a JSON schema, 1 any JSON object (`text` is not read), 2 a regular expression that the whole text
 * matches, 3 a grammar in llguidance's variant of Lark. */
ReckonerTextCode reckoner_text_compile_grammar(const ReckonerTextGrammars* grammars, int32_t kind, ReckonerTextSlice text,
                                               ReckonerTextGrammar** grammar, ReckonerTextBytes* error);

/* Sets bit id % 32 of mask[id / 32] for each token that may come next and clears all others. `count` is not 0. */
ReckonerTextCode reckoner_text_fill_mask(ReckonerTextGrammar* grammar, uint32_t* mask, size_t count, ReckonerTextBytes* error);

/* Takes the chosen token. If it is not allowed, nothing changes. */
ReckonerTextCode reckoner_text_accept(ReckonerTextGrammar* grammar, uint32_t id, ReckonerTextBytes* error);

/* 1 once nothing but the end of the text may follow. */
int32_t reckoner_text_grammar_finished(const ReckonerTextGrammar* grammar);

#ifdef __cplusplus
}
#endif
