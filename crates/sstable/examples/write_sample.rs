//! Writes a sample sstable for Cassandra's tools to read: `write_sample DIRECTORY [COMPRESSOR]`.
//!
//! COMPRESSOR is lz4 (the default), snappy, deflate, zstd or none.

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;

use sstable::{Compression, Compressor, EncodingBase, Writer, WriterOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments
        .next()
        .ok_or("usage: write_sample DIRECTORY [lz4|snappy|deflate|zstd|none]")?;
    let compressor = match arguments.next().as_deref() {
        None | Some("lz4") => Some(Compressor::Lz4),
        Some("snappy") => Some(Compressor::Snappy),
        Some("deflate") => Some(Compressor::Deflate),
        Some("zstd") => Some(Compressor::Zstd(3)),
        Some("none") => None,
        Some(other) => return Err(format!("there is no compressor {other}").into()),
    };
    let compression = match compressor {
        Some(_) => Compression {
            compressor,
            chunk_len: 16 << 10,
        },
        None => Compression::none(),
    };
    let dir = Path::new(&dir);
    runtime::fs::create_dir_all(dir)?;
    let wide = common::wide_table();
    let blocks = common::wide_blocks(&wide);
    let mut options = WriterOptions::of_table(&wide, 10, EncodingBase::of_blocks(&wide.layout, &blocks))?;
    options.compression = compression.clone();
    options.host_id = Some(uuid::Uuid::from_u128(1));
    let mut writer = Writer::create(dir, 1, &wide, options)?;
    for block in &blocks {
        writer.append(block)?;
    }
    println!(
        "{}",
        writer.finish()?.descriptor.path(sstable::Component::Data).display()
    );

    let long = common::long_table();
    let mut options = WriterOptions::of_table(&long, 3, EncodingBase::default())?;
    options.compression = compression;
    let mut writer = Writer::create(dir, 2, &long, options)?;
    let mut blocks: Vec<_> = [("short", 3), ("long", 5_000), ("tiny", 1)]
        .iter()
        .map(|(key, rows)| common::long_partition(&long, key.as_bytes(), *rows, 100))
        .collect();
    blocks.sort_by(|a, b| (a.token, a.key()).cmp(&(b.token, b.key())));
    for block in &blocks {
        writer.append(block)?;
    }
    println!(
        "{}",
        writer.finish()?.descriptor.path(sstable::Component::Data).display()
    );
    Ok(())
}
