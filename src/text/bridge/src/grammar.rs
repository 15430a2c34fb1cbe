//! Grammars over a model's tokens: which of them may come next.

use std::{collections::HashSet, sync::Arc};

use llguidance::{
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie},
    Matcher, ParserFactory,
};
use serde_json::{json, Value};

use crate::{
    failure::{Code, Failure},
    tokenizer::Tokenizer,
};

/// White space between two parts of a JSON text. Without a bound a model can go on with it forever.
const JSON_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,64}";

pub struct Grammars {
    factory: ParserFactory,
    eos: Vec<u32>,
    vocab_size: usize,
}

#[derive(Clone, Copy)]
pub enum Kind {
    JsonSchema,
    JsonObject,
    Regex,
    Lark,
}

impl Kind {
    pub fn from_number(number: i32) -> Result<Self, Failure> {
        match number {
            0 => Ok(Self::JsonSchema),
            1 => Ok(Self::JsonObject),
            2 => Ok(Self::Regex),
            3 => Ok(Self::Lark),
            _ => Err(argument(format!("no such kind of grammar: {number}"))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::JsonSchema => "json_schema",
            Self::JsonObject => "json_object",
            Self::Regex => "regex",
            Self::Lark => "grammar",
        }
    }
}

impl Grammars {
    /// `vocab_size` is the width of the model's logits, which may be more than the tokenizer knows, or less.
    pub fn new(tokenizer: &Tokenizer, eos: &[u32], vocab_size: usize) -> Result<Self, Failure> {
        if eos.is_empty() {
            return Err(argument("a grammar needs a token that ends the text"));
        }
        if let Some(id) = eos.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(argument(format!(
                "token id {id} ends the text, but the model has {vocab_size} tokens"
            )));
        }
        let added = tokenizer.added_ids();
        let words = words(tokenizer, added, eos, vocab_size);
        let size = u32::try_from(vocab_size).map_err(|_| argument("too many tokens"))?;
        let trie = TokTrie::from(&TokRxInfo::new(size, eos[0]), &words).with_eos_tokens(eos);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&environment).map_err(internal)?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self {
            factory,
            eos: eos.to_vec(),
            vocab_size,
        })
    }

    pub fn compile(&self, kind: Kind, text: &str) -> Result<Grammar, Failure> {
        let fail = |what: String| argument(format!("{}: {}", kind.name(), tidy(&what)));
        let grammar = match kind {
            Kind::JsonSchema => {
                let schema = serde_json::from_str(text).map_err(|error| fail(error.to_string()))?;
                TopLevelGrammar::from_json_schema(with_bounded_space(schema).map_err(fail)?)
            }
            Kind::JsonObject => {
                let schema =
                    json!({"type": "object", "x-guidance": {"whitespace_pattern": JSON_SPACE}});
                TopLevelGrammar::from_json_schema(schema)
            }
            Kind::Regex => TopLevelGrammar::from_regex(text),
            Kind::Lark => TopLevelGrammar::from_lark(text.to_owned()),
        };
        let parser = self.factory.create_parser(grammar);
        let parser = parser.map_err(|error| fail(format!("{error:#}")))?;
        let mut matcher = Matcher::new(Ok(parser));
        if let Some(error) = matcher.get_error() {
            return Err(fail(error));
        }
        // Such as a schema that only refers to itself: better said now than amid an answer.
        if let Err(error) = matcher.compute_mask_or_eos() {
            return Err(fail(format!(
                "no text follows it ({})",
                tidy(&error.to_string())
            )));
        }
        Ok(Grammar {
            matcher,
            eos: self.eos.clone(),
            vocab_size: self.vocab_size,
        })
    }
}

/// The bytes of each token. The library takes a token that begins with 0xFF for one that no text contains: such are all
/// tokens that were added to the vocabulary (`<|user|>`, `<think>`), so that none turns up within a string. Ids that the
/// tokenizer does not know have no bytes and are never allowed.
fn words(
    tokenizer: &Tokenizer,
    added: &HashSet<u32>,
    eos: &[u32],
    vocab_size: usize,
) -> Vec<Vec<u8>> {
    let known = tokenizer.vocab_size().min(vocab_size);
    let mut words = vec![Vec::new(); vocab_size];
    for (id, word) in (0..).zip(&mut words[..known]) {
        let piece = tokenizer.piece(id).unwrap_or_default();
        if added.contains(&id) || eos.contains(&id) {
            word.push(TokTrie::SPECIAL_TOKEN_MARKER);
        }
        word.extend(piece);
    }
    words
}

/// OpenAI's structured answers are objects: what a schema without any demand means there.
fn with_bounded_space(mut schema: Value) -> Result<Value, String> {
    if schema == json!({}) || schema == json!(true) {
        schema = json!({"type": "object"});
    }
    let Some(object) = schema.as_object_mut() else {
        return Err("expected an object".to_owned());
    };
    object
        .entry("x-guidance")
        .or_insert_with(|| json!({"whitespace_pattern": JSON_SPACE}));
    Ok(schema)
}

pub struct Grammar {
    matcher: Matcher,
    eos: Vec<u32>,
    vocab_size: usize,
}

impl Grammar {
    /// Sets bit `id % 32` of word `id / 32` for each token that may come next, and clears the others.
    pub fn fill_mask(&mut self, mask: &mut [u32]) -> Result<(), Failure> {
        let allowed = self.matcher.compute_mask_or_eos().map_err(stopped)?;
        let words = allowed.as_slice();
        let count = words.len().min(mask.len());
        mask[..count].copy_from_slice(&words[..count]);
        mask[count..].fill(0);
        if self.vocab_size % 32 != 0 && mask.len() * 32 > self.vocab_size {
            mask[self.vocab_size / 32] &= (1 << (self.vocab_size % 32)) - 1;
        }
        Ok(())
    }

    /// Takes the token that was chosen. A token that is not allowed changes nothing.
    pub fn accept(&mut self, id: u32) -> Result<(), Failure> {
        if self.matcher.is_error() {
            let error = self.matcher.get_error().unwrap_or_default();
            return Err(stopped(error));
        }
        let allowed = if self.matcher.is_stopped() {
            self.eos.contains(&id)
        } else {
            (id as usize) < self.vocab_size
                && self.matcher.try_consume_tokens(&[id]).map_err(stopped)? == 1
        };
        if allowed {
            return Ok(());
        }
        Err(argument(format!(
            "token id {id} is not allowed by the grammar here"
        )))
    }

    /// Whether nothing but the end of the text may follow.
    pub fn finished(&self) -> bool {
        self.matcher.is_stopped()
    }
}

/// Without what the library adds to its messages for its own developers, and not the whole of a long text that it quotes.
fn tidy(message: &str) -> String {
    const MAX_CHARACTERS: usize = 600;
    let end = message
        .find("\n<non-verbose/>")
        .or_else(|| message.find("\n<backtrace>"));
    let message = message[..end.unwrap_or(message.len())].trim();
    match message.char_indices().nth(MAX_CHARACTERS) {
        Some((place, _)) => format!("{} ...", &message[..place]),
        None => message.to_owned(),
    }
}

fn argument(text: impl Into<String>) -> Failure {
    Failure::new(Code::Argument, text)
}

fn stopped(error: impl ToString) -> Failure {
    let text = error.to_string();
    argument(format!("the grammar cannot go on: {}", tidy(&text)))
}

fn internal(error: impl ToString) -> Failure {
    Failure::new(Code::Internal, error.to_string())
}

/// The border lets any number of threads compile at once.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn moved<T: Send>() {}
    shared::<Grammars>();
    moved::<Grammar>();
};
