//! Fuzzes configuration files: Ephor's own, and the emulator's `Config.json`.

use ephor_hub::NamespaceConfig;
use ephor_hub::config::ConfigFileError;

/// The maximum length of an error beside what it repeats of the file.
const WORDS_OF_A_REFUSAL: usize = 2_000;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match NamespaceConfig::from_json(text) {
        Ok(read) => {
            assert_eq!(read.config.validate(), Ok(()), "a configuration that was read is valid");
            let again = NamespaceConfig::from_json(text).expect("the same text is valid again");
            assert_eq!(again, read);
        }
        Err(refused) => {
            // A name is shown with Rust's escapes: a character becomes ten at most.
            assert!(refused.to_string().len() <= data.len() * 10 + WORDS_OF_A_REFUSAL, "{refused}");
            if let ConfigFileError::Syntax { line, .. } | ConfigFileError::Invalid { line, .. } = refused {
                assert!((1..=text.split('\n').count()).contains(&line), "line {line} is not in the file");
            }
        }
    }
}
