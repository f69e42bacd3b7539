//! `compression = {'class': …}`: which compressors there are, and which options each of them takes.

use std::collections::BTreeMap;

use schema::java_double;

use crate::error::DdlError;

const PACKAGE: &str = "org.apache.cassandra.io.compress.";
const CHUNK_LENGTH: &str = "chunk_length_in_kb";
/// The longest chunk, in KiB: as much is read for one row.
const CHUNK_LENGTH_KB_MAX: i64 = 64 << 10;

/// Checks what was given and completes it. Also returns `crc_check_chance`, which older schemas have in this map.
pub(crate) fn prepare(
    mut given: BTreeMap<String, String>,
) -> Result<(BTreeMap<String, String>, Option<f64>), DdlError> {
    let crc_check_chance = match given.remove("crc_check_chance") {
        None => None,
        Some(text) => match text.parse::<f64>() {
            Ok(v) if v.is_finite() => Some(v),
            _ => return Err(config("crc_check_chance should be a double.".to_owned())),
        },
    };
    if given.is_empty() && crc_check_chance.is_some() {
        return Err(without_class());
    }
    Ok((prepare_map(given)?, crc_check_chance))
}

fn config(text: String) -> DdlError {
    DdlError::Config(text)
}

fn without_class() -> DdlError {
    config("Missing sub-option 'class' for the 'compression' option.".to_owned())
}

fn prepare_map(mut given: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, DdlError> {
    let disabled = || BTreeMap::from([("enabled".to_owned(), "false".to_owned())]);
    if given.is_empty() {
        return Ok(disabled());
    }
    if let Some(enabled) = given.remove("enabled")
        && !enabled.eq_ignore_ascii_case("true")
    {
        if given.is_empty() {
            return Ok(disabled());
        }
        return Err(config(
            "If the 'enabled' option is set to false no other options must be specified".to_owned(),
        ));
    }
    let class = match (given.remove("class"), given.remove("sstable_compression")) {
        (Some(_), Some(_)) => {
            return Err(config(
                "The 'sstable_compression' option must not be used if the compression algorithm is already specified by \
                 the 'class' option"
                    .to_owned(),
            ));
        }
        (Some(class), None) if class.is_empty() => {
            return Err(config(
                "The 'class' option must not be empty. To disable compression use 'enabled' : false".to_owned(),
            ));
        }
        (None, Some(class)) if class.is_empty() => return Ok(disabled()),
        (Some(class), None) | (None, Some(class)) => class,
        (None, None) => return Err(without_class()),
    };
    let class = if class.contains('.') {
        class
    } else {
        format!("{PACKAGE}{class}")
    };
    let own: &[&str] = match class.strip_prefix(PACKAGE) {
        Some("LZ4Compressor") => &["lz4_compressor_type", "lz4_high_compressor_level"],
        Some("ZstdCompressor") => &["compression_level"],
        Some("SnappyCompressor" | "DeflateCompressor" | "NoopCompressor") => &[],
        _ => return Err(config(format!("Could not create Compression for type {class}"))),
    };
    let chunk_length_kb = chunk_length(&mut given)?;
    let min_compress_ratio = min_compress_ratio(&mut given)?;
    let strangers: Vec<&str> = given.keys().map(String::as_str).filter(|k| !own.contains(k)).collect();
    if !strangers.is_empty() {
        return Err(config(format!("Unknown compression options {}", strangers.join(", "))));
    }
    check_compressor(&given)?;
    given.insert(CHUNK_LENGTH.to_owned(), chunk_length_kb.to_string());
    given.insert("class".to_owned(), class);
    if let Some(ratio) = min_compress_ratio {
        given.insert("min_compress_ratio".to_owned(), java_double(ratio));
    }
    Ok(given)
}

fn chunk_length(given: &mut BTreeMap<String, String>) -> Result<i64, DdlError> {
    let old = given.remove("chunk_length_kb");
    let text = match (given.remove(CHUNK_LENGTH), old) {
        (Some(_), Some(_)) => {
            return Err(config(format!(
                "The 'chunk_length_kb' option must not be used if the chunk length is already specified by the \
                 '{CHUNK_LENGTH}' option"
            )));
        }
        (Some(text), None) | (None, Some(text)) => text,
        (None, None) => return Ok(16),
    };
    let Ok(length) = text.parse::<i64>() else {
        return Err(config(format!("Invalid value for {CHUNK_LENGTH}")));
    };
    if length > CHUNK_LENGTH_KB_MAX {
        return Err(config(format!("Value of {CHUNK_LENGTH} is too large ({text})")));
    }
    if length <= 0 {
        return Err(config(format!("Invalid negative or null {CHUNK_LENGTH}")));
    }
    if length & (length - 1) != 0 {
        return Err(config(format!("{CHUNK_LENGTH} must be a power of 2")));
    }
    Ok(length)
}

/// None for 0, which is the default and not shown.
fn min_compress_ratio(given: &mut BTreeMap<String, String>) -> Result<Option<f64>, DdlError> {
    let Some(text) = given.remove("min_compress_ratio") else {
        return Ok(None);
    };
    match text.parse::<f64>() {
        Ok(0.0) => Ok(None),
        Ok(v) if v.is_finite() && v >= 1.0 => Ok(Some(v)),
        Ok(v) if v < 0.0 => Err(config("Invalid negative min_compress_ratio".to_owned())),
        Ok(_) => Err(config(
            "min_compress_ratio can either be 0 or greater than or equal to 1".to_owned(),
        )),
        Err(_) => Err(config("Invalid value for min_compress_ratio".to_owned())),
    }
}

fn check_compressor(given: &BTreeMap<String, String>) -> Result<(), DdlError> {
    if let Some(v) = given.get("lz4_compressor_type")
        && !matches!(v.as_str(), "fast" | "high")
    {
        return Err(config(format!(
            "Invalid compressor type '{v}' specified for LZ4 parameter 'lz4_compressor_type'. Valid options are [high, \
             fast]."
        )));
    }
    for (name, least, most) in [
        ("lz4_high_compressor_level", 1, 17),
        ("compression_level", -131_072, 22),
    ] {
        if let Some(v) = given.get(name)
            && !v.parse::<i32>().is_ok_and(|n| (least..=most).contains(&n))
        {
            return Err(config(format!(
                "Invalid value [{v}] for parameter '{name}'. Value must be between {least} and {most}."
            )));
        }
    }
    Ok(())
}
