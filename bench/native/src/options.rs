//! What the command line says: a command, an endpoint and `--name value` pairs.

use std::collections::HashMap;

use crate::{Fault, COMMANDS};

pub struct Options {
    pub command: String,
    endpoint: String,
    values: HashMap<String, String>,
}

impl Options {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Fault> {
        let command = words.next().ok_or_else(|| format!("which load? {COMMANDS}"))?;
        let endpoint = words.next().unwrap_or_default();
        let mut values = HashMap::new();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or_else(|| format!("{word}: not an option"))?;
            let value = words.next().ok_or_else(|| format!("{word} has no value"))?;
            values.insert(name.to_owned(), value);
        }
        Ok(Self { command, endpoint, values })
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub fn optional(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub fn text(&self, name: &str) -> Result<&str, Fault> {
        Ok(self.values.get(name).ok_or_else(|| format!("--{name} is missing"))?)
    }

    pub fn number(&self, name: &str) -> Result<f64, Fault> {
        let text = self.text(name)?;
        let value: f64 = text.parse().map_err(|_| format!("--{name} {text}: not a number"))?;
        (value >= 0.0).then_some(value).ok_or_else(|| format!("--{name} {text}: below 0").into())
    }

    pub fn count(&self, name: &str) -> Result<usize, Fault> {
        let text = self.text(name)?;
        Ok(text.parse().map_err(|_| format!("--{name} {text}: not a count"))?)
    }

    pub fn count_or(&self, name: &str, otherwise: usize) -> Result<usize, Fault> {
        self.optional(name).map_or(Ok(otherwise), |_| self.count(name))
    }
}
