//! Whatever happens to the bytes of a file: an error, never a panic, and never an answer that was not written.

use std::path::{Path, PathBuf};

use crate::common::{TempDir, forget_checksums, wide_blocks, wide_table};
use sstable::{Component, Compression, Compressor, EncodingBase, Writer, WriterOptions};

fn write_sample(dir: &Path, compression: Compression) -> PathBuf {
    let table = wide_table();
    let blocks = wide_blocks(&table);
    let base = EncodingBase::of_blocks(&table.layout, &blocks);
    let mut options = WriterOptions::of_table(&table, 7, base).expect("known options");
    options.compression = compression;
    options.column_index_size_bytes = 64;
    let mut writer = Writer::create(dir, 1, &table, options).expect("an empty directory");
    blocks.iter().for_each(|b| writer.append(b).expect("room on the disk"));
    writer
        .finish()
        .expect("room on the disk")
        .descriptor
        .path(Component::Data)
}

fn dump(file: &Path) -> Result<Vec<u8>, sstable::Error> {
    let mut out = Vec::new();
    sstable::tool::dump(file, 0, &mut out).map(|()| out)
}

#[test]
fn every_flipped_bit_and_every_cut_of_a_component_is_noticed() {
    for compression in [
        Compression {
            compressor: Some(Compressor::Lz4),
            chunk_len: 256,
        },
        Compression::none(),
    ] {
        let dir = TempDir::new("damage");
        let file = write_sample(&dir.0, compression);
        sstable::tool::verify(&file).expect("a sound file");
        let mut tried = 0;
        for entry in runtime::fs::read_dir(&dir.0).expect("the directory") {
            let path = dir.0.join(&entry.name);
            let sound = runtime::fs::read(&path).expect("a component");
            // Statistics are long and all alike to this test.
            let step = if sound.len() > 2000 { 211 } else { 3 };
            for at in (0..sound.len()).step_by(step) {
                let mut flipped = sound.clone();
                flipped[at] ^= 1 << (at % 8);
                // The line of TOC.txt that names it, and a line end, do not matter.
                let is_toc = entry.name.ends_with("TOC.txt");
                if is_toc && (at + 8 >= sound.len() || sound[at] == b'\n') {
                    continue;
                }
                for (what, bytes) in [("flipped", &flipped[..]), ("cut", &sound[..at])] {
                    if is_toc && what == "cut" && at + 9 >= sound.len() {
                        continue;
                    }
                    runtime::fs::write(&path, bytes).expect("room on the disk");
                    let error = sstable::tool::verify(&file)
                        .expect_err(&format!("{} {what} at {at}: nobody noticed", entry.name));
                    assert!(error.to_string().contains("me-1-big-"), "{error}");
                    tried += 1;
                }
            }
            runtime::fs::write(&path, &sound).expect("room on the disk");
        }
        assert!(tried > 400, "{tried}");
    }
}

#[test]
fn without_any_checksum_damage_may_go_unnoticed_but_nothing_panics() {
    let dir = TempDir::new("fuzz");
    let file = write_sample(&dir.0, Compression::none());
    forget_checksums(&dir);
    let sound_dump = dump(&file).expect("a sound file");
    sstable::tool::verify(&file).expect("a sound file");
    let (mut noticed, mut unnoticed) = (0, 0);
    for name in ["Data.db", "Index.db", "Summary.db", "Filter.db", "Statistics.db"] {
        let path = dir.0.join(format!("me-1-big-{name}"));
        let sound = runtime::fs::read(&path).expect("a component");
        let step = match name {
            "Data.db" => 1,
            "Statistics.db" => 101,
            _ => 3,
        };
        for at in (0..sound.len()).step_by(step) {
            for mask in [0x80, 1 << (at % 8)] {
                let mut bytes = sound.clone();
                bytes[at] ^= mask;
                runtime::fs::write(&path, &bytes).expect("room on the disk");
                match sstable::tool::verify(&file).and_then(|_| dump(&file)) {
                    Ok(_) => unnoticed += usize::from(name == "Data.db"),
                    Err(_) => noticed += usize::from(name == "Data.db"),
                }
            }
            runtime::fs::write(&path, &sound[..at]).expect("room on the disk");
            // The end of a component may be what is not read.
            let _ = sstable::tool::verify(&file);
        }
        runtime::fs::write(&path, &sound).expect("room on the disk");
    }
    assert!(noticed * 3 > unnoticed, "{noticed} of {} noticed", noticed + unnoticed);
    assert_eq!(dump(&file).expect("a sound file"), sound_dump);
}

#[test]
fn an_empty_chunk_at_the_end_is_read_whether_the_digest_covers_it_or_not() {
    let dir = TempDir::new("empty-chunk");
    let file = write_sample(
        &dir.0,
        Compression {
            compressor: Some(Compressor::Lz4),
            chunk_len: 256,
        },
    );
    let component = |name: &str| dir.0.join(format!("me-1-big-{name}"));
    let read = |name: &str| runtime::fs::read(component(name)).expect("a component");
    let write = |name: &str, bytes: &[u8]| runtime::fs::write(component(name), bytes).expect("room on the disk");
    let sound = dump(&file).expect("a sound file");
    let toc = String::from_utf8(read("TOC.txt"))
        .expect("text")
        .replace("Checksums.db\n", "");
    write("TOC.txt", toc.as_bytes());
    runtime::fs::remove_file(component("Checksums.db")).expect("a component");
    // As Cassandra may: one more chunk, of no data.
    let (mut data, mut info) = (read("Data.db"), read("CompressionInfo.db"));
    let empty = [0, 0, 0, 0, 0];
    let count_at = 2 + "LZ4Compressor".len() + 4 + 4 + 8;
    let count = u32::from_be_bytes(info[count_at..count_at + 4].try_into().expect("four bytes"));
    info[count_at..count_at + 4].copy_from_slice(&(count + 1).to_be_bytes());
    info.extend_from_slice(&(data.len() as u64).to_be_bytes());
    data.extend_from_slice(&empty);
    data.extend_from_slice(&crc32fast::hash(&empty).to_be_bytes());
    write("CompressionInfo.db", &info);
    write("Data.db", &data);
    sstable::tool::verify(&file).expect("the digest leaves the empty chunk out");
    write("Digest.crc32", crc32fast::hash(&data).to_string().as_bytes());
    sstable::tool::verify(&file).expect("the digest covers the empty chunk");
    assert_eq!(dump(&file).expect("a sound file"), sound);
}
