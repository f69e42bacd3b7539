//! Data files: gzip, a line for each item.
//!
//! [`check`] reads a whole file once without looking into its lines; [`Lines`] reads it again, line by line.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use runtime::fs::{File, OpenOptions};

use crate::export::DataFile;

/// Bytes of a line. An item has 400 KB, of which a character may take six in JSON, and a change has two images.
pub(crate) const LINE_BYTES_MAX: usize = 8 << 20;
const BUFFER_BYTES: usize = 256 << 10;

/// The bytes of a file in order. Reading blocks.
struct Bytes {
    file: File,
    offset: u64,
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at_blocking(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Hashes what is read through it.
struct Hashed<R> {
    inner: R,
    md5: md5::Context,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.md5.consume(&buffer[..count]);
        Ok(count)
    }
}

fn open(path: &Path) -> Result<Bytes, String> {
    let file = File::open(path, OpenOptions::READ).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Bytes { file, offset: 0 })
}

/// Checks that a data file is the one of the manifest: its checksum, and the count of its lines. Blocks.
///
/// # Errors
/// When the file is missing, truncated, or not the one of the manifest.
pub(crate) fn check(file: &DataFile) -> Result<(), String> {
    check_bytes(open(&file.path)?, file).map_err(|reason| format!("{}: {reason}", file.path.display()))
}

fn check_bytes(bytes: impl Read, file: &DataFile) -> Result<(), String> {
    let hashed = Hashed {
        inner: bytes,
        md5: md5::Context::new(),
    };
    let mut raw = BufReader::with_capacity(BUFFER_BYTES, hashed);
    let counted = count_lines(&mut raw);
    // Where the gzip is broken the checksum of the rest says whether the copy is damaged or the export itself.
    io::copy(&mut raw, &mut io::sink()).map_err(|e| e.to_string())?;
    let md5 = raw.into_inner().md5.finalize();
    if *md5 != file.md5 {
        return Err(
            "the MD5 of the file is not the md5Checksum of manifest-files.json; copy the file again".to_owned(),
        );
    }
    let counted = counted.map_err(|e| format!("cannot be decompressed: {e}"))?;
    if counted != file.item_count {
        return Err(format!(
            "has {counted} lines, and manifest-files.json says {} items",
            file.item_count
        ));
    }
    Ok(())
}

/// Lines that are not empty. Nothing of a file without bytes is decompressed: empty partitions have such files.
fn count_lines(raw: &mut impl BufRead) -> io::Result<u64> {
    if raw.fill_buf()?.is_empty() {
        return Ok(0);
    }
    let mut text = BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(raw));
    let (mut count, mut has_text) = (0, false);
    loop {
        let bytes = text.fill_buf()?;
        if bytes.is_empty() {
            return Ok(count + u64::from(has_text));
        }
        for byte in bytes {
            match byte {
                b'\n' => {
                    count += u64::from(has_text);
                    has_text = false;
                }
                b'\r' | b' ' => {}
                _ => has_text = true,
            }
        }
        let length = bytes.len();
        text.consume(length);
    }
}

/// The lines of a data file, without those that are empty. Reading blocks.
pub(crate) struct Lines {
    text: Box<dyn BufRead>,
    /// Of the line that was read last, from 1.
    number: u64,
    line: Vec<u8>,
}

impl Lines {
    /// Opens a file that was checked.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        Self::of(open(path)?).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn of(bytes: impl Read + 'static) -> io::Result<Self> {
        let mut raw = BufReader::with_capacity(BUFFER_BYTES, bytes);
        let text: Box<dyn BufRead> = if raw.fill_buf()?.is_empty() {
            Box::new(raw)
        } else {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(raw)))
        };
        Ok(Self {
            text,
            number: 0,
            line: Vec::new(),
        })
    }

    /// The next line and its number; None at the end.
    ///
    /// # Errors
    /// When the file cannot be read or a line is too long.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        loop {
            self.line.clear();
            let mut limited = (&mut self.text).take(LINE_BYTES_MAX as u64 + 1);
            if limited.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.len() > LINE_BYTES_MAX {
                let message = format!("line {} is longer than {LINE_BYTES_MAX} bytes", self.number);
                return Err(io::Error::new(ErrorKind::InvalidData, message));
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some((self.number, self.line.trim_ascii())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).expect("memory takes everything");
        encoder.finish().expect("memory takes everything")
    }

    fn described(bytes: &[u8], item_count: u64) -> DataFile {
        DataFile {
            key: "k".to_owned(),
            path: PathBuf::from("f"),
            item_count,
            md5: *md5::compute(bytes),
        }
    }

    #[test]
    fn a_file_as_the_manifest_says_is_accepted() {
        let two = gzip(b"{}\n{}\n");
        check_bytes(&two[..], &described(&two, 2)).expect("two lines");
        let without_end = gzip(b"{}\r\n\n{}");
        check_bytes(&without_end[..], &described(&without_end, 2)).expect("two lines, and one that is empty");
        let members = [gzip(b"{}\n"), gzip(b"{}\n")].concat();
        check_bytes(&members[..], &described(&members, 2)).expect("gzip files may be concatenated");
        check_bytes(&b""[..], &described(b"", 0)).expect("the file of an empty partition");
    }

    #[test]
    fn a_file_that_is_not_as_the_manifest_says_is_refused() {
        let file = gzip(b"{}\n{}\n");
        let refused =
            |bytes: &[u8], described: &DataFile| check_bytes(bytes, described).expect_err("it is another file");
        let changed = [&file[..], b"x"].concat();
        assert!(refused(&changed, &described(&file, 2)).starts_with("the MD5"));
        assert_eq!(
            refused(&file, &described(&file, 3)),
            "has 2 lines, and manifest-files.json says 3 items"
        );
        let truncated = &file[..file.len() - 9];
        assert!(
            refused(truncated, &described(&file, 2)).starts_with("the MD5"),
            "a copy that ended early"
        );
        assert!(
            refused(truncated, &described(truncated, 2)).starts_with("cannot be decompressed"),
            "the export itself has a truncated file"
        );
        assert!(
            refused(b"{}\n", &described(b"{}\n", 1)).starts_with("cannot be decompressed"),
            "no gzip"
        );
    }

    #[test]
    fn lines_have_their_numbers() {
        let mut lines = Lines::of(io::Cursor::new(gzip(b"a\n\n b \r\nc"))).expect("memory can be read");
        let mut read = Vec::new();
        while let Some((number, line)) = lines.next().expect("every line is short") {
            read.push((number, line.to_vec()));
        }
        assert_eq!(read, [(1, b"a".to_vec()), (3, b"b".to_vec()), (4, b"c".to_vec())]);
        let mut empty = Lines::of(io::empty()).expect("memory can be read");
        assert!(empty.next().expect("no line").is_none());
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let long = gzip(&vec![b'x'; LINE_BYTES_MAX + 1]);
        let mut lines = Lines::of(io::Cursor::new(long)).expect("memory can be read");
        assert!(lines.next().is_err());
    }
}
