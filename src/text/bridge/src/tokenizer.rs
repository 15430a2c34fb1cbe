//! Loading a model folder's tokenizer, and looking up its tokens.

use std::{
    collections::HashSet,
    path::Path,
    sync::{Arc, OnceLock},
};

use llm_tokenizer::{
    create_tokenizer_with_chat_template, traits::Tokenizer as LibraryTokenizer,
    HuggingFaceTokenizer,
};
use serde_json::Value;

use crate::{
    failure::{Code, Failure},
    folder::{
        find_template, parse_tokenizer, read_config, read_model_config, Template, TokenizerJson,
    },
    prompt::Prompts,
    tiktoken::{self, Ranks},
};

pub struct Tokenizer {
    pub library: Arc<dyn LibraryTokenizer>,
    pub prompts: Prompts,
    /// The beginning-of-text and end-of-text tokens of tokenizer_config.json.
    pub bos_token: Option<String>,
    pub eos_token: Option<String>,
    spelling: Spelling,
    vocab_size: usize,
    added: OnceLock<HashSet<u32>>,
}

/// How a vocabulary spells bytes in its token strings.
enum Spelling {
    /// GPT-2's alphabet: one printable character a byte.
    ByteLevel,
    /// SentencePiece: U+2581 for a space, `<0xHH>` for a byte.
    SentencePiece,
    /// Not at all: tokens are bytes.
    Bytes(Ranks),
    /// As they are.
    Plain,
}

impl Tokenizer {
    /// Loads from files alone: nothing here or below goes to the network.
    pub fn load(folder: &Path) -> Result<Self, Failure> {
        // An absolute path, because the library gives some bare names ("mock", hub names) a meaning of their own.
        let folder = folder.canonicalize().map_err(|error| {
            Failure::new(
                Code::TokenizerFile,
                format!("{}: {error}", folder.display()),
            )
        })?;
        let config = read_config(&folder)?;
        let model_config = read_model_config(&folder)?;
        // The library reads the template too. It is parsed first, so that a broken one is not reported as a broken
        // tokenizer.
        let prompts = Prompts::choose(find_template(&folder, &config)?, &model_config)?;
        let file = tiktoken::find_file(&folder);
        let file = file.filter(|_| !folder.join("tokenizer.json").is_file());
        let Some(file) = file else {
            let library = load_library_of(&folder)?;
            let spelling = spelling_of(library.as_ref());
            return Ok(Self::new(library, prompts, spelling, &config));
        };
        tiktoken::check_pattern_is_known(&file, &config, &model_config)?;
        tiktoken::check_added_tokens(&config, &folder.join("tokenizer_config.json"))?;
        let spelling = Spelling::Bytes(Ranks::read(&file)?);
        let library = load_library(&file, &file)?;
        Ok(Self::new(library, prompts, spelling, &config))
    }

    /// Loads the text of a tokenizer.json and, unless empty, of a chat template.
    pub fn from_memory(json: &[u8], template: &str) -> Result<Self, Failure> {
        let text = std::str::from_utf8(json)
            .map_err(|error| Failure::new(Code::TokenizerFile, error.to_string()))?;
        parse_tokenizer(text).map_err(|error| Failure::new(Code::TokenizerFile, error))?;
        let mut inner = tokenizers::Tokenizer::from_bytes(json)
            .map_err(|error| Failure::new(Code::TokenizerFile, error.to_string()))?;
        // See TokenizerJson::open.
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|error| Failure::new(Code::TokenizerFile, error.to_string()))?;
        let template = (!template.is_empty()).then(|| Template {
            name: "chat template".to_owned(),
            text: template.to_owned(),
        });
        let library: Arc<dyn LibraryTokenizer> =
            Arc::new(HuggingFaceTokenizer::from_tokenizer(inner));
        let spelling = spelling_of(library.as_ref());
        let prompts = Prompts::choose(template, &Value::Null)?;
        Ok(Self::new(library, prompts, spelling, &Value::Null))
    }

    fn new(
        library: Arc<dyn LibraryTokenizer>,
        prompts: Prompts,
        spelling: Spelling,
        config: &Value,
    ) -> Self {
        // A token is a string, or an object with its content.
        let token = |name| {
            let token = &config[name];
            let text = token.as_str().or_else(|| token["content"].as_str());
            text.map(str::to_owned)
        };
        Self {
            bos_token: token("bos_token"),
            eos_token: token("eos_token"),
            vocab_size: id_count(library.as_ref()),
            library,
            prompts,
            spelling,
            added: OnceLock::new(),
        }
    }

    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, Failure> {
        self.library
            .encode(text, add_special_tokens)
            .map(|encoding| encoding.token_ids().to_vec())
            .map_err(|error| Failure::new(Code::Argument, format!("{error}")))
    }

    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, Failure> {
        self.library
            .decode(ids, skip_special_tokens)
            .map_err(|error| Failure::new(Code::Argument, format!("{error}")))
    }

    /// The bytes that `id` stands for on its own; half a character is common.
    pub fn piece(&self, id: u32) -> Result<Vec<u8>, Failure> {
        if let Spelling::Bytes(ranks) = &self.spelling {
            if let Some(bytes) = ranks.piece(id) {
                return Ok(bytes.to_vec());
            }
        }
        let token = self.library.id_to_token(id).ok_or_else(|| {
            let text = format!("token id {id} is not in this vocabulary");
            Failure::new(Code::Argument, text)
        })?;
        Ok(match self.spelling {
            Spelling::ByteLevel => byte_level_bytes(&token),
            Spelling::SentencePiece => byte_fallback_byte(&token)
                .map_or_else(|| token.replace('\u{2581}', " ").into_bytes(), |b| vec![b]),
            Spelling::Bytes(_) | Spelling::Plain => token.into_bytes(),
        })
    }

    /// Tokens in the model's own vocabulary, without the added ones.
    pub fn base_vocab_size(&self) -> usize {
        match &self.spelling {
            Spelling::Bytes(ranks) => ranks.count(),
            _ => self.library.vocab_size(),
        }
    }

    /// The tokens that were added to the vocabulary, such as `<|user|>`.
    pub fn added_ids(&self) -> &HashSet<u32> {
        self.added.get_or_init(|| self.find_added())
    }

    fn find_added(&self) -> HashSet<u32> {
        let library = self.library.as_ref();
        let mut ids: HashSet<u32> = added_tokens(library).collect();
        let special = library.get_special_tokens();
        let named = [&special.bos_token, &special.eos_token, &special.pad_token];
        let named = named.into_iter().chain([&self.bos_token, &self.eos_token]);
        ids.extend(
            named
                .flatten()
                .filter_map(|token| library.token_to_id(token)),
        );
        if let Spelling::Bytes(ranks) = &self.spelling {
            ids.extend(
                (0..)
                    .take(self.vocab_size)
                    .filter(|&id| ranks.piece(id).is_none()),
            );
        }
        ids
    }

    /// One more than the largest id, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }
}

/// Loads the tokenizer.json of a folder, or what else is there.
fn load_library_of(folder: &Path) -> Result<Arc<dyn LibraryTokenizer>, Failure> {
    let file = folder.join("tokenizer.json");
    if !file.is_file() {
        return load_library(folder, folder);
    }
    let json = TokenizerJson::open(folder)?; // a copy, if it is one, lives until the library has read it
    load_library(&json.path(), &file)
}

/// Loads `source`; errors name `file`.
fn load_library(source: &Path, file: &Path) -> Result<Arc<dyn LibraryTokenizer>, Failure> {
    let fail = |what: String| {
        let text = format!("{}: {what}", file.display());
        Failure::new(Code::TokenizerFile, text)
    };
    let source = source
        .to_str()
        .ok_or_else(|| fail("the path is not UTF-8".to_owned()))?;
    create_tokenizer_with_chat_template(source, None).map_err(|error| fail(error.to_string()))
}

fn spelling_of(library: &dyn LibraryTokenizer) -> Spelling {
    // The library has a per-id decoder exactly for byte-level vocabularies (and for tiktoken's).
    if library.as_any().is::<HuggingFaceTokenizer>() && library.incremental_decoder(false).is_some()
    {
        Spelling::ByteLevel
    } else if library.uses_byte_fallback() {
        Spelling::SentencePiece
    } else {
        Spelling::Plain
    }
}

/// The library counts the model's own tokens only, so that the added ones are looked at one by one.
fn id_count(library: &dyn LibraryTokenizer) -> usize {
    added_tokens(library)
        .map(|id| id as usize + 1)
        .max()
        .unwrap_or(0)
        .max(library.vocab_size())
}

fn added_tokens(library: &dyn LibraryTokenizer) -> impl Iterator<Item = u32> + '_ {
    let special = &library.get_special_tokens().additional_special_tokens;
    let others = library.added_token_strings().into_iter();
    let others = others.chain(library.added_tokens_after_normalization());
    special
        .iter()
        .cloned()
        .chain(others)
        .filter_map(|token| library.token_to_id(&token))
}

/// The bytes of a token of a byte-level vocabulary. A string with a character outside the alphabet is an added token
/// and stands for itself.
fn byte_level_bytes(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(alphabet_byte).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// GPT-2's alphabet: printable Latin-1 bytes are themselves, the other 68 follow from U+0100 in their order.
fn alphabet_byte(character: char) -> Option<u8> {
    let code = u32::from(character);
    let byte = match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x100..=0x120 => code - 0x100,
        0x121 => 0x7F,
        0x122..=0x142 => code - 0x122 + 0x80,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// The byte of a token written `<0xHH>`.
fn byte_fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}
