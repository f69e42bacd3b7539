//! Makes the index files of an sstable that lacks them.

use std::path::PathBuf;
use std::sync::Arc;

use mutation::RowView;
use mutation::terms::IndexTerms;
use schema::{IndexId, Table};
use stdx::planted::{self, Bug};

use super::write::IndexWriters;
use crate::data::decode::{ItemKind, RowDecoder, Stop, item_head, partition_head};
use crate::data::window::Window;
use crate::error::Error;
use crate::io;
use crate::read::reader::Reader;

/// Bytes of data that one read takes.
const READ_AHEAD: u64 = 512 << 10;

/// The name of a file that is being made.
fn unfinished(path: PathBuf) -> PathBuf {
    let mut name = path.into_os_string();
    name.push(".tmp");
    name.into()
}

/// Makes the files of some of a table's indexes for an sstable, durably, and takes them. `advance` is called with the
/// bytes of data that were read, and ends it by false: then nothing remains. Whether the files are made. Blocks.
///
/// # Errors
/// When a file cannot be read or written, or is damaged.
pub fn build_indexes(
    reader: &Arc<Reader>,
    table: &Table,
    ids: &[IndexId],
    mut advance: impl FnMut(u64) -> bool,
) -> Result<bool, Error> {
    let descriptor = reader.descriptor();
    let wanted = IndexTerms::of_table(table)
        .into_iter()
        .filter(|terms| ids.contains(&terms.id));
    let mut writers = IndexWriters::of(wanted.collect(), |terms| unfinished(descriptor.index_path(terms.id)));
    let (data, format) = (&reader.data, &reader.shape.format);
    let path = data.path();
    let (mut window, mut raw) = (Window::default(), Vec::new());
    let (mut clustering, mut decoder, mut packed) = (Vec::new(), RowDecoder::default(), Vec::new());
    let mut key: Option<Vec<u8>> = None;
    loop {
        let at = window.position();
        let has_stopped = planted::is_planted(Bug::UnfinishedBuild) && at > data.len() / 2;
        if key.is_none() && (at >= data.len() || has_stopped) {
            break;
        }
        let step = match &key {
            None => partition_head(window.rest()).map(|head| {
                key = Some(window.rest()[head.key.clone()].to_vec());
                writers.begin_partition(at);
                head.len
            }),
            Some(this) => match item_head(format, window.rest(), &mut clustering) {
                Ok(item) => {
                    let is_row = matches!(item.kind, ItemKind::Row | ItemKind::StaticRow);
                    if is_row {
                        let read = decoder.read(format, &reader.shape.layout, window.rest(), &item);
                        read.map_err(|damage| damage.in_file(path, at))?;
                        packed.clear();
                        decoder.pack(&reader.shape.layout, window.rest(), &mut packed);
                        let row = RowView::new(&packed).expect("it was packed just now");
                        if item.kind == ItemKind::Row {
                            writers.row(&reader.shape.layout, this, (&clustering, row), at)?;
                        } else {
                            writers.static_row(&reader.shape.layout, this, row, at)?;
                        }
                    }
                    let is_end = item.kind == ItemKind::End;
                    let len = item.body.end.max(1);
                    if is_end {
                        key = None;
                    }
                    Ok(len)
                }
                Err(stop) => Err(stop),
            },
        };
        match step {
            Ok(len) => window.consume(len),
            Err(Stop::Damage(damage)) => return Err(damage.in_file(path, at)),
            Err(Stop::More(more)) => {
                let wanted = window.want(more, data)?;
                window.compact();
                let len = window.bytes.len() + wanted;
                let before = window.next_chunk;
                while window.bytes.len() < len {
                    window.next_chunk +=
                        data.read_blocking(window.next_chunk, READ_AHEAD, &mut raw, &mut window.bytes)?;
                }
                if !advance((window.next_chunk - before) * data.chunk_len()) {
                    return Ok(false);
                }
            }
        }
    }
    writers.finish()?;
    for id in ids {
        let path = descriptor.index_path(*id);
        let made = unfinished(path.clone());
        if io::exists(&made) {
            io::rename(&made, &path)?;
        }
    }
    io::sync_dir(&descriptor.dir)?;
    Ok(ids.iter().all(|id| reader.take_index(*id)))
}
