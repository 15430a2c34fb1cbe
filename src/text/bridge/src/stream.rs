//! Tokens in, text out, one at a time.

use std::sync::Arc;

use llm_tokenizer::{Sequence, SequenceDecoderOutput, StopSequenceConfig, StopSequenceDecoder};

use crate::{
    failure::{Code, Failure},
    tokenizer::Tokenizer,
};

pub struct Stream {
    decoder: StopSequenceDecoder,
    stops: Vec<String>,
    /// Tells when the stop decoder's text is complete up to the last token. The library's stop decoder holds text
    /// back for two reasons, half a character and half a stop string, does not say which, and drops the half
    /// character at the end of the stream; so the same tokens go through a plain sequence beside it.
    progress: Sequence,
    /// Tokens since `progress` last gave text: those of a character that is not complete.
    pending: Vec<u32>,
    finished: bool,
}

/// The text that became final, and the place in the list of the stop string that ended the stream.
#[derive(Debug, Default)]
pub struct Step {
    pub text: String,
    pub stop: Option<usize>,
}

impl Stream {
    pub fn new(
        tokenizer: &Tokenizer,
        stops: Vec<String>,
        skip_special_tokens: bool,
    ) -> Result<Self, Failure> {
        if stops.iter().any(String::is_empty) {
            return Err(Failure::new(Code::Argument, "a stop string is empty"));
        }
        let config = StopSequenceConfig {
            stop_sequences: stops.clone(),
            ..StopSequenceConfig::default()
        };
        let library = &tokenizer.library;
        Ok(Self {
            decoder: StopSequenceDecoder::new(Arc::clone(library), config, skip_special_tokens),
            stops,
            progress: Sequence::new_with_options(Arc::clone(library), skip_special_tokens),
            pending: Vec::new(),
            finished: false,
        })
    }

    /// Takes the next token. After a stop string nothing more is given.
    pub fn push(&mut self, id: u32) -> Result<Step, Failure> {
        if self.finished {
            let text = format!("token id {id} after the end of the stream");
            return Err(Failure::new(Code::Argument, text));
        }
        if self.decoder.is_stopped() {
            return Ok(self.step(String::new()));
        }
        let output = self.decoder.process_token(id).map_err(argument)?;
        if self.progress.append_token(id).map_err(argument)?.is_empty() {
            self.pending.push(id);
        } else {
            self.pending.clear();
        }
        Ok(self.step(text_of(output)))
    }

    /// Ends the stream: gives the text that was held back, with U+FFFD for the bytes of half a character.
    pub fn finish(&mut self) -> Result<Step, Failure> {
        if self.finished || self.decoder.is_stopped() {
            self.finished = true;
            return Ok(self.step(String::new()));
        }
        self.finished = true;
        let mut text = text_of(self.decoder.finish().map_err(argument)?);
        let flushed = !self.progress.finish().map_err(argument)?.is_empty();
        if !flushed && !self.decoder.is_stopped() {
            let skip = self.progress.skip_special_tokens();
            let half = self.progress.tokenizer().decode(&self.pending, skip);
            text.push_str(&half.map_err(argument)?);
        }
        Ok(self.step(text))
    }

    fn step(&self, text: String) -> Step {
        let matched = self.decoder.matched_stop();
        Step {
            text,
            stop: matched.and_then(|stop| self.stops.iter().position(|given| given == stop)),
        }
    }
}

fn text_of(output: SequenceDecoderOutput) -> String {
    match output {
        SequenceDecoderOutput::Text(text) | SequenceDecoderOutput::StoppedWithText(text) => text,
        SequenceDecoderOutput::Held | SequenceDecoderOutput::Stopped => String::new(),
    }
}

fn argument(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Argument, error.to_string())
}
