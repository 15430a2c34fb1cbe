//! What the library does not tell of a tiktoken vocabulary (Kimi's): the bytes of each token, and what is wrong with a file.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use base64::{engine::general_purpose::STANDARD, Engine as _};
use serde_json::Value;

use crate::{
    failure::{Code, Failure},
    folder::{read_text, ID_LIMIT},
};

/// The tokens of a vocabulary file by id, without the added ones.
pub struct Ranks {
    bytes: Vec<u8>,
    /// Where each id's token lies in `bytes`; empty for an id without a token.
    places: Vec<(u32, u32)>,
    count: usize,
}

impl Ranks {
    /// The bytes of token `id`.
    pub fn piece(&self, id: u32) -> Option<&[u8]> {
        let &(begin, end) = self.places.get(id as usize)?;
        (begin < end).then(|| &self.bytes[begin as usize..end as usize])
    }

    /// How many tokens there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Reads the file that the library reads. The library takes what it gets: a repeated rank stops the process's work, a
    /// missing byte the encoding of the first text that has it, and neither says which line of which file it was.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = read_text(path, Code::TokenizerFile)?;
        let fail =
            |what: String| Failure::new(Code::TokenizerFile, format!("{}{what}", path.display()));
        let mut ranks = Self {
            bytes: Vec::new(),
            places: Vec::new(),
            count: 0,
        };
        let mut seen = HashSet::new();
        for (index, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.is_empty())
        {
            let at_line = |what: String| fail(format!(":{}: {what}", index + 1));
            let (token, id) = parse_line(line).map_err(at_line)?;
            if !seen.insert(token.clone()) {
                return Err(at_line(format!("token {:?} was there before", line)));
            }
            ranks.add(&token, id).map_err(at_line)?;
        }
        let absent = (0..=u8::MAX).find(|&byte| !seen.contains([byte].as_slice()));
        match absent {
            Some(byte) => Err(fail(format!(
                ": no token for the byte 0x{byte:02X}; a vocabulary has one for each of the 256"
            ))),
            None => Ok(ranks),
        }
    }

    fn add(&mut self, token: &[u8], id: u32) -> Result<(), String> {
        let index = id as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, (0, 0));
        }
        if self.places[index] != (0, 0) {
            return Err(format!("rank {id} was there before"));
        }
        let begin = self.bytes.len() as u32;
        self.bytes.extend_from_slice(token);
        self.places[index] = (begin, self.bytes.len() as u32);
        self.count += 1;
        Ok(())
    }
}

/// A line is a token's bytes in base64, a space and its rank, which is its id.
fn parse_line(line: &str) -> Result<(Vec<u8>, u32), String> {
    let expected = || format!("expected a token in base64, a space and its rank, found {line:?}");
    let (token, rank) = line.trim_end().split_once(' ').ok_or_else(expected)?;
    let token = STANDARD.decode(token).map_err(|_| expected())?;
    let rank: u64 = rank.parse().map_err(|_| expected())?;
    if token.is_empty() {
        return Err(expected());
    }
    if rank >= ID_LIMIT {
        let largest = ID_LIMIT - 1;
        return Err(format!(
            "the rank is {rank}; ranks up to {largest} are expected"
        ));
    }
    Ok((token, rank as u32))
}

/// The vocabulary file of a folder without tokenizer.json: the one that the library would take.
pub fn find_file(folder: &Path) -> Option<PathBuf> {
    let published = folder.join("tiktoken.model");
    if published.exists() {
        return Some(published);
    }
    let mut entries = folder.read_dir().ok()?.flatten();
    entries.find_map(|entry| {
        let path = entry.path();
        (path.extension()? == "tiktoken").then_some(path)
    })
}

/// How a vocabulary cuts text into words stands in the Python file beside it, and no data names it. Kimi's is known; any
/// other folder would load with a pattern that is not its own, and give the model tokens that it never saw in training.
pub fn check_pattern_is_known(
    file: &Path,
    tokenizer_config: &Value,
    model_config: &Value,
) -> Result<(), Failure> {
    let model_type = model_config["model_type"].as_str().unwrap_or("");
    if ["kimi_k2", "kimi_k25"].contains(&model_type) || mentions_kimi(tokenizer_config) {
        return Ok(());
    }
    Err(Failure::new(
        Code::TokenizerFile,
        format!(
            "{}: how this vocabulary splits words is not known: of tiktoken vocabularies only Kimi's is \
             (tokenizer_config.json names tokenization_kimi, or config.json has model_type kimi_k2 or kimi_k25), and \
             there is no tokenizer.json",
            file.display()
        ),
    ))
}

fn mentions_kimi(value: &Value) -> bool {
    match value {
        Value::String(text) => text.split('.').any(|part| part == "tokenization_kimi"),
        Value::Array(items) => items.iter().any(mentions_kimi),
        Value::Object(fields) => fields.values().any(mentions_kimi),
        _ => false,
    }
}

/// The added tokens of tokenizer_config.json: the library drops those that it cannot read, and every text with one of them
/// would be encoded letter by letter.
pub fn check_added_tokens(tokenizer_config: &Value, path: &Path) -> Result<(), Failure> {
    let fail = |what: String| {
        let text = format!("{}: added_tokens_decoder: {what}", path.display());
        Failure::new(Code::ConfigFile, text)
    };
    let added = match &tokenizer_config["added_tokens_decoder"] {
        Value::Null => return Ok(()),
        Value::Object(added) => added,
        other => return Err(fail(format!("expected an object, found {other}"))),
    };
    for (id, token) in added {
        if id.parse::<u64>().map_or(true, |id| id >= ID_LIMIT) {
            let largest = ID_LIMIT - 1;
            return Err(fail(format!("expected ids up to {largest}, found {id:?}")));
        }
        if token["content"].as_str().is_none_or(str::is_empty) {
            return Err(fail(format!(
                "expected a token with its content at {id}, found {token}"
            )));
        }
    }
    Ok(())
}
