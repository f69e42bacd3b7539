//! Cuts the bytes that arrive on a connection into request frames.
//!
//! The caller owns the input buffer: it appends what the socket gives, calls [`Splitter::next`] until it returns
//! `None`, and drops the consumed bytes. Bodies are slices of that buffer; only a compressed body, and a frame spread
//! over several segments, are put together in a buffer of the splitter's own.
//!
//! A frame above the limit is refused and skipped as it arrives, without being buffered. Any other error is the end of
//! the connection: the place where the next frame begins is lost.

use std::ops::Range;

use crate::codes::{ProtocolVersion, frame_flags};
use crate::compression::{Compression, append_decompressed_lz4, decompress_body, decompressed_bytes};
use crate::error::{FrameError, ProtocolError};
use crate::frame::{FRAME_HEADER_BYTES, Frame, FrameHeader};
use crate::segment::{CRC32_BYTES, SegmentHeader, check_payload, segment_header_bytes};

/// The longest frame, as the specification says it. A longer one is refused.
pub const FRAME_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The longest frame of a client that has not said STARTUP: a stranger cannot make us buffer more.
pub const FRAME_BYTES_MAX_BEFORE_STARTUP: usize = 64 * 1024;

/// The splitter gives back its own buffer beyond this when it is empty.
const SCRATCH_BYTES_KEPT: usize = 256 * 1024;

/// How much a connection may make us buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a frame after STARTUP, before and after decompression.
    pub frame_bytes_max: usize,
    /// Bytes of a frame before STARTUP.
    pub frame_bytes_max_before_startup: usize,
    /// Bytes that the splitter's own buffer may have without [`Splitter::allow_scratch`].
    pub scratch_bytes_free: usize,
    /// Bytes of a body up to which [`Splitter::next`] decompresses it; the caller decompresses longer ones
    /// ([`Splitter::take_long_body`]).
    pub short_body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            frame_bytes_max: FRAME_BYTES_MAX,
            frame_bytes_max_before_startup: FRAME_BYTES_MAX_BEFORE_STARTUP,
            scratch_bytes_free: usize::MAX,
            short_body_bytes: usize::MAX,
        }
    }
}

/// How the frames of a connection are encoded on the wire, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Nothing: frames follow one another.
    #[default]
    Plain,
    /// Bodies may be compressed (versions 3 and 4).
    CompressedBodies(Compression),
    /// Frames are packed into checksummed segments (version 5).
    Segments {
        /// Whether segments are compressed.
        lz4: bool,
    },
}

impl Framing {
    /// What a connection uses after the answer to STARTUP. READY and AUTHENTICATE themselves are still sent plain.
    pub fn after_startup(version: ProtocolVersion, compression: Option<Compression>) -> Result<Framing, ProtocolError> {
        match (version, compression) {
            (ProtocolVersion::V3 | ProtocolVersion::V4, None) => Ok(Framing::Plain),
            (ProtocolVersion::V3 | ProtocolVersion::V4, Some(compression)) => {
                Ok(Framing::CompressedBodies(compression))
            }
            (ProtocolVersion::V5, None) => Ok(Framing::Segments { lz4: false }),
            (ProtocolVersion::V5, Some(Compression::Lz4)) => Ok(Framing::Segments { lz4: true }),
            (ProtocolVersion::V5, Some(Compression::Snappy)) => Err(ProtocolError::NotAllowed {
                what: "Unsupported compression: protocol version 5 has lz4 only, got snappy",
            }),
        }
    }
}

/// Cuts the input of one connection into frames.
#[derive(Debug)]
pub struct Splitter {
    limits: Limits,
    framing: Framing,
    /// The version of STARTUP, once it has been accepted.
    version: Option<ProtocolVersion>,
    /// Bytes of frames that are left of the checked, uncompressed, self-contained segment at the front of the input.
    segment_left: usize,
    /// Decompressed bodies or segments, or the beginning of a frame spread over segments.
    scratch: Vec<u8>,
    /// How much of `scratch` has been handed out.
    scratch_at: usize,
    /// Whether `scratch` holds a frame spread over segments.
    assembling: bool,
    /// Bytes that are left of a frame above the limit; they are dropped as they arrive.
    skip_bytes: usize,
    wanted_bytes: usize,
    /// How large `scratch` may be.
    scratch_allowed: usize,
    /// How large it has to be for the next frame, where it may not.
    scratch_wanted: usize,
    long_body: LongBody,
}

/// The body of the frame at the front of the input, if it is compressed and long.
#[derive(Debug)]
enum LongBody {
    None,
    /// The caller is to decompress it.
    Compressed(CompressedBody),
    /// It is in the splitter's own buffer, unless decompressing it failed.
    Decompressed(Result<(), ProtocolError>),
}

/// A compressed body that takes long to decompress.
#[derive(Debug)]
pub struct CompressedBody {
    compression: Compression,
    /// Bytes of its frame.
    frame_bytes: usize,
    bytes_max: usize,
    /// What it is decompressed into.
    out: Vec<u8>,
}

/// A long body that was decompressed, or could not be.
#[derive(Debug)]
pub struct DecompressedBody {
    out: Vec<u8>,
    result: Result<(), ProtocolError>,
}

impl CompressedBody {
    /// Decompresses it, on any thread. `input` is what was not consumed.
    #[must_use]
    pub fn decompress(self, input: &[u8]) -> DecompressedBody {
        let Self { mut out, bytes_max, .. } = self;
        let body = &input[FRAME_HEADER_BYTES..self.frame_bytes];
        let result = decompress_body(self.compression, body, bytes_max, &mut out);
        DecompressedBody { out, result }
    }
}

/// Where the bytes of a complete frame are.
enum FrameBytes {
    Input(Range<usize>),
    Scratch(Range<usize>),
}

impl Splitter {
    /// For a new connection.
    pub fn new(limits: Limits) -> Splitter {
        Splitter {
            limits,
            framing: Framing::Plain,
            version: None,
            segment_left: 0,
            scratch: Vec::new(),
            scratch_at: 0,
            assembling: false,
            skip_bytes: 0,
            wanted_bytes: FRAME_HEADER_BYTES,
            scratch_allowed: limits.scratch_bytes_free,
            scratch_wanted: 0,
            long_body: LongBody::None,
        }
    }

    /// STARTUP has been accepted: from the next frame on, this version and framing hold.
    pub fn start(&mut self, version: ProtocolVersion, framing: Framing) {
        self.version = Some(version);
        self.framing = framing;
    }

    /// The version of STARTUP, once [`Splitter::start`] was called.
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.version
    }

    /// After `None`: how many unconsumed bytes the input must have before another call can yield a frame.
    pub fn wanted_bytes(&self) -> usize {
        self.wanted_bytes
    }

    /// After `None`: how large the splitter's own buffer has to be before another call can yield a frame; 0 if it is
    /// large enough. When [`Splitter::allow_scratch`] has allowed that, another call may yield a frame of the same
    /// input.
    pub fn wanted_scratch_bytes(&self) -> usize {
        self.scratch_wanted
    }

    /// Allows the splitter's own buffer to be so large.
    pub fn allow_scratch(&mut self, bytes: usize) {
        if bytes > self.scratch_allowed {
            self.scratch_allowed = bytes;
            self.scratch.reserve_exact(bytes - self.scratch.len());
        }
        self.scratch_wanted = 0;
    }

    /// After `None`: the body of the next frame, if that is complete, and long to decompress. The next call yields the
    /// frame when the body was decompressed and given back ([`Splitter::put_long_body`]); what was not consumed has to
    /// be the same then.
    pub fn take_long_body(&mut self) -> Option<CompressedBody> {
        match std::mem::replace(&mut self.long_body, LongBody::None) {
            LongBody::Compressed(body) => Some(body),
            other => {
                self.long_body = other;
                None
            }
        }
    }

    /// Gives back what [`Splitter::take_long_body`] returned, decompressed.
    pub fn put_long_body(&mut self, body: DecompressedBody) {
        self.scratch = body.out;
        self.long_body = LongBody::Decompressed(body.result);
    }

    /// Gives back the splitter's own buffer if nothing in it is needed. To be called when all frames that were handed
    /// out are executed.
    pub fn release_scratch(&mut self) {
        if self.assembling || self.scratch_at < self.scratch.len() && self.is_of_segments() {
            return;
        }
        self.scratch.clear();
        self.scratch_at = 0;
        if self.scratch.capacity() > SCRATCH_BYTES_KEPT.min(self.limits.scratch_bytes_free) {
            self.scratch = Vec::new();
        }
        self.scratch_allowed = self.limits.scratch_bytes_free;
    }

    /// Whether the splitter's own buffer is larger than it always may be.
    pub fn has_scratch(&self) -> bool {
        self.scratch_allowed > self.limits.scratch_bytes_free
    }

    fn is_of_segments(&self) -> bool {
        matches!(self.framing, Framing::Segments { .. })
    }

    /// Whether the splitter's own buffer may have so many bytes; if not, this many of them are requested.
    fn may_have_scratch(&mut self, bytes: usize, wanted: usize) -> bool {
        let may = bytes <= self.scratch_allowed;
        if !may {
            self.scratch_wanted = wanted.max(bytes);
        }
        may
    }

    /// The next frame of `input[*consumed..]`, or `None` until more bytes arrive. Advances `consumed`.
    ///
    /// # Errors
    /// When the bytes do not follow the protocol. After an error with [`FrameError::resumes`] the next call continues
    /// after the refused frame.
    pub fn next<'a>(&'a mut self, input: &'a [u8], consumed: &mut usize) -> Result<Option<Frame<'a>>, FrameError> {
        let ready = match self.framing {
            Framing::Plain => self.next_plain(input, consumed, None)?,
            Framing::CompressedBodies(compression) => self.next_plain(input, consumed, Some(compression))?,
            Framing::Segments { lz4 } => self.next_in_segments(input, consumed, lz4)?,
        };
        Ok(ready.map(|(header, place)| {
            let body = match place {
                FrameBytes::Input(range) => &input[range],
                FrameBytes::Scratch(range) => &self.scratch[range],
            };
            Frame { header, body }
        }))
    }

    /// The header at the start of `input`, of the connection's version. Its frame may be above the limit, unless
    /// STARTUP is still to come.
    fn parse_header(&self, input: &[u8]) -> Result<Option<FrameHeader>, FrameError> {
        let frame_bytes_max = match self.version {
            Some(_) => usize::MAX,
            None => self.limits.frame_bytes_max_before_startup,
        };
        let Some(header) = FrameHeader::parse(input, frame_bytes_max)? else {
            return Ok(None);
        };
        match self.version {
            Some(expected) if expected != header.version => Err(FrameError {
                version: expected,
                stream: header.stream,
                error: ProtocolError::ChangedVersion {
                    expected,
                    found: header.version,
                },
                resumes: false,
            }),
            _ => Ok(Some(header)),
        }
    }

    /// The refusal of a frame above the limit.
    #[inline]
    fn check_length(&self, header: &FrameHeader) -> Result<(), FrameError> {
        // Before STARTUP a different limit holds, which was checked with the header.
        if header.frame_bytes() > self.limits.frame_bytes_max && self.version.is_some() {
            Err(self.too_large(header))
        } else {
            Ok(())
        }
    }

    #[cold]
    fn too_large(&self, header: &FrameHeader) -> FrameError {
        FrameError {
            version: header.version,
            stream: header.stream,
            error: ProtocolError::FrameTooLarge {
                frame_bytes: header.frame_bytes(),
                frame_bytes_max: self.limits.frame_bytes_max,
            },
            resumes: true,
        }
    }

    #[inline]
    fn next_plain(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
        compression: Option<Compression>,
    ) -> Result<Option<(FrameHeader, FrameBytes)>, FrameError> {
        if self.skip_bytes > 0 && !self.skip(input, consumed) {
            return Ok(None);
        }
        let at = *consumed;
        let available = input.get(at..).unwrap_or_default();
        let Some(header) = self.parse_header(available)? else {
            self.wanted_bytes = FRAME_HEADER_BYTES;
            return Ok(None);
        };
        if let Err(error) = self.check_length(&header) {
            self.skip_bytes = header.frame_bytes();
            self.skip(input, consumed);
            return Err(error);
        }
        if available.len() < header.frame_bytes() {
            self.wanted_bytes = header.frame_bytes();
            return Ok(None);
        }
        let end = at + header.frame_bytes();
        let body = at + FRAME_HEADER_BYTES..end;
        // Some clients mark empty bodies as compressed and send nothing.
        if header.flags & frame_flags::COMPRESSION == 0 || body.is_empty() {
            *consumed = end;
            return Ok(Some((header, FrameBytes::Input(body))));
        }
        // The next frame begins where this one ends, whatever its body decompresses to.
        let has_started = self.version.is_some();
        let fail = |error| FrameError {
            version: header.version,
            stream: header.stream,
            resumes: has_started && matches!(error, ProtocolError::FrameTooLarge { .. }),
            error,
        };
        let Some(compression) = compression else {
            return Err(fail(ProtocolError::NotAllowed {
                what: "The frame is marked as compressed, but STARTUP agreed on no compression",
            }));
        };
        let body_bytes_max = self.limits.frame_bytes_max;
        let decompressed = match decompressed_bytes(compression, &input[body.clone()], body_bytes_max) {
            Ok(decompressed) => decompressed,
            Err(error) => {
                *consumed = end;
                return Err(fail(error));
            }
        };
        if !self.may_have_scratch(decompressed, decompressed) {
            self.wanted_bytes = header.frame_bytes();
            return Ok(None);
        }
        let result = match std::mem::replace(&mut self.long_body, LongBody::None) {
            LongBody::Decompressed(result) => result,
            _ if decompressed > self.limits.short_body_bytes => {
                self.wanted_bytes = header.frame_bytes();
                self.long_body = LongBody::Compressed(CompressedBody {
                    compression,
                    frame_bytes: header.frame_bytes(),
                    bytes_max: body_bytes_max,
                    out: std::mem::take(&mut self.scratch),
                });
                return Ok(None);
            }
            _ => decompress_body(compression, &input[body], body_bytes_max, &mut self.scratch),
        };
        *consumed = end;
        result.map_err(fail)?;
        Ok(Some((header, FrameBytes::Scratch(0..self.scratch.len()))))
    }

    /// Drops what has arrived of a frame above the limit; true when that is all of it.
    fn skip(&mut self, input: &[u8], consumed: &mut usize) -> bool {
        let skipped = self.skip_bytes.min(input.len() - *consumed);
        *consumed += skipped;
        self.skip_bytes -= skipped;
        self.wanted_bytes = 1;
        self.skip_bytes == 0
    }

    fn next_in_segments(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
        lz4: bool,
    ) -> Result<Option<(FrameHeader, FrameBytes)>, FrameError> {
        loop {
            if self.segment_left > 0 {
                return self.next_in_checked_segment(input, consumed);
            }
            if self.scratch_at < self.scratch.len()
                && let Some(ready) = self.next_in_scratch()?
            {
                return Ok(Some(ready));
            }
            if !self.assembling {
                self.scratch.clear();
                self.scratch_at = 0;
            }
            if !self.read_segment(input, consumed, lz4)? {
                return Ok(None);
            }
        }
    }

    /// A frame of the segment at the front of the input, whose checksums have been checked.
    fn next_in_checked_segment(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
    ) -> Result<Option<(FrameHeader, FrameBytes)>, FrameError> {
        let at = *consumed;
        let end = at + self.segment_left;
        let segment = input
            .get(at..end)
            .expect("the caller keeps the bytes that were not consumed");
        let header = match self.parse_header(segment)? {
            Some(header) if header.frame_bytes() <= segment.len() => header,
            other => return Err(self.cut_frame(other)),
        };
        self.segment_left -= header.frame_bytes();
        let body = at + FRAME_HEADER_BYTES..at + header.frame_bytes();
        *consumed = body.end;
        if self.segment_left == 0 {
            *consumed += CRC32_BYTES;
        }
        self.check_length(&header)?;
        Ok(Some((header, FrameBytes::Input(body))))
    }

    /// A frame of the decompressed segment, or the frame put together from segments; `None` when that is not complete.
    fn next_in_scratch(&mut self) -> Result<Option<(FrameHeader, FrameBytes)>, FrameError> {
        let rest = &self.scratch[self.scratch_at..];
        let header = match self.parse_header(rest)? {
            Some(header) if header.frame_bytes() <= rest.len() => header,
            Some(header) if self.assembling => {
                if let Err(error) = self.check_length(&header) {
                    self.skip_bytes = header.frame_bytes() - rest.len();
                    self.scratch = Vec::new();
                    return Err(error);
                }
                return Ok(None);
            }
            None if self.assembling => return Ok(None),
            other => return Err(self.cut_frame(other)),
        };
        if self.assembling && header.frame_bytes() < rest.len() {
            return Err(self.trailing_bytes(Some(header)));
        }
        self.assembling = false;
        let body = self.scratch_at + FRAME_HEADER_BYTES..self.scratch_at + header.frame_bytes();
        self.scratch_at = body.end;
        self.check_length(&header)?;
        Ok(Some((header, FrameBytes::Scratch(body))))
    }

    /// Takes the next segment from the input, if it is complete.
    fn read_segment(&mut self, input: &[u8], consumed: &mut usize, lz4: bool) -> Result<bool, FrameError> {
        let available = input.get(*consumed..).unwrap_or_default();
        let header_bytes = segment_header_bytes(lz4);
        let Some((header, rest)) = available.split_at_checked(header_bytes) else {
            self.wanted_bytes = header_bytes;
            return Ok(false);
        };
        let header = SegmentHeader::parse(header, lz4).map_err(|error| self.fail(None, error))?;
        let is_copied = self.skip_bytes == 0 && (!header.self_contained || header.decompressed_bytes.is_some());
        let scratch_bytes = if is_copied {
            self.scratch.len() + header.decompressed_bytes.unwrap_or(header.payload_bytes)
        } else {
            0
        };
        let Some((payload, rest)) = rest
            .split_at_checked(header.payload_bytes)
            .filter(|(_, rest)| rest.len() >= CRC32_BYTES)
        else {
            self.wanted_bytes = header_bytes + header.payload_bytes + CRC32_BYTES;
            self.may_have_scratch(scratch_bytes, self.assembled_bytes(&[]));
            return Ok(false);
        };
        check_payload(payload, &rest[..CRC32_BYTES]).map_err(|error| self.fail(None, error))?;
        if header.self_contained && self.assembling {
            let what = "A self-contained segment came between the segments of a larger frame";
            return Err(self.fail(None, ProtocolError::NotAllowed { what }));
        }
        if header.self_contained && header.decompressed_bytes.is_none() && !payload.is_empty() {
            self.segment_left = payload.len();
            *consumed += header_bytes;
            return Ok(true);
        }
        let length = header.decompressed_bytes.unwrap_or(payload.len());
        let segment_bytes = header_bytes + header.payload_bytes + CRC32_BYTES;
        if self.skip_bytes > 0 {
            if length > self.skip_bytes {
                return Err(self.trailing_bytes(None));
            }
            self.skip_bytes -= length;
            self.assembling = self.skip_bytes > 0;
            *consumed += segment_bytes;
            return Ok(true);
        }
        let frame_bytes = if header.self_contained {
            0
        } else {
            self.assembled_bytes(payload)
        };
        if !self.may_have_scratch(scratch_bytes, frame_bytes) {
            self.wanted_bytes = header_bytes + header.payload_bytes + CRC32_BYTES;
            return Ok(false);
        }
        // While a frame is put together it is below the limit, and what is there of it is less than the frame.
        match header.decompressed_bytes {
            Some(_) => {
                let result = append_decompressed_lz4(payload, length, &mut self.scratch);
                result.map_err(|error| self.fail(None, error))?;
            }
            None => self.scratch.extend_from_slice(payload),
        }
        self.assembling = !header.self_contained;
        *consumed += segment_bytes;
        Ok(true)
    }

    /// The size of the frame that is put together, if its header has come: in the splitter's own buffer, or at the
    /// start of a payload.
    fn assembled_bytes(&self, payload: &[u8]) -> usize {
        let begun = if self.assembling { &self.scratch[..] } else { payload };
        let header = FrameHeader::parse(begun, self.limits.frame_bytes_max);
        // One above the limit is not put together.
        header.ok().flatten().map_or(0, |header| header.frame_bytes())
    }

    #[cold]
    fn trailing_bytes(&self, header: Option<FrameHeader>) -> FrameError {
        let what = "A frame spread over several segments is followed by other bytes in its last segment";
        self.fail(header, ProtocolError::NotAllowed { what })
    }

    #[cold]
    fn cut_frame(&self, header: Option<FrameHeader>) -> FrameError {
        self.fail(
            header,
            ProtocolError::NotAllowed {
                what: "A self-contained segment ends inside a frame",
            },
        )
    }

    #[cold]
    fn fail(&self, header: Option<FrameHeader>, error: ProtocolError) -> FrameError {
        let version = self.version.unwrap_or(ProtocolVersion::HIGHEST);
        FrameError {
            version,
            stream: header.map_or(0, |header| header.stream),
            error,
            resumes: false,
        }
    }
}
