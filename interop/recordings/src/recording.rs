//! Reads recordings: one file for each connection, one JSON object for each frame.
//!
//! They were written by a proxy that decoded every frame, so a field that was absent and one that had its default look the same.
//! Files are named `TEST-NUMBER.json`. The connections of one test used the same hub, so they are played together, in
//! the order of their times.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value as Json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The largest file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 << 20;
/// The most files of a folder.
pub const MAX_FILES: usize = 100_000;
/// The deepest folder that is searched.
const MAX_DEPTH: usize = 16;

/// A recording that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}{}: {reason}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
pub struct RecordingError {
    path: String,
    line: Option<usize>,
    reason: String,
}

/// The side that sent a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Direction {
    /// The service sent it.
    #[serde(rename = "in")]
    Service,
    /// The client sent it.
    #[serde(rename = "out")]
    Client,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Line {
    time: String,
    direction: Direction,
    #[serde(default)]
    entity_path: String,
    #[serde(default)]
    link_name: String,
    #[serde(default)]
    receiver: bool,
    frame_type: String,
    frame: Option<RawFrame>,
    #[serde(default)]
    message_data: Json,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawFrame {
    header: Header,
    #[serde(default)]
    body: Json,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Header {
    channel: u16,
}

/// One recorded frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its line in the file, counted from 1.
    pub line: usize,
    /// The time at which the proxy saw it, in nanoseconds since 1970.
    pub time: i128,
    /// The side that sent it.
    pub direction: Direction,
    /// The name of the performative, as the recording has it.
    pub kind: String,
    /// The address of the link that it belongs to; empty if there is none.
    pub address: String,
    /// The name of the link that it belongs to; empty if there is none.
    pub link: String,
    /// True if the client is the receiver of that link.
    pub client_receives: bool,
    /// The channel; 0 if the frame was redacted.
    pub channel: u16,
    /// The fields; null if the frame was redacted because it had a token.
    pub body: Json,
    /// The message, where the recording has it decoded.
    pub message: Json,
}

/// One recorded connection.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The name of the file without its ending.
    pub name: String,
    /// Its frames, in the order in which they were recorded.
    pub frames: Vec<Frame>,
}

/// The connections of one test, which share a hub.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its conversations, by the number in their names.
    pub conversations: Vec<Conversation>,
}

/// Reads all recordings of a folder and the folders in it.
pub fn read_folder(folder: &Path) -> Result<Vec<Group>, RecordingError> {
    let mut files = Vec::new();
    find(folder, 0, &mut files)?;
    files.sort();
    let mut groups: Vec<(PathBuf, Vec<(u64, Conversation)>)> = Vec::new();
    for path in files {
        let (test, number) = split_name(&path);
        let conversation = read_file(&path)?;
        match groups.iter_mut().find(|(name, _)| *name == test) {
            Some((_, group)) => group.push((number, conversation)),
            None => groups.push((test, vec![(number, conversation)])),
        }
    }
    Ok(groups
        .into_iter()
        .map(|(_, mut numbered)| {
            numbered.sort_by_key(|(number, _)| *number);
            Group { conversations: numbered.into_iter().map(|(_, conversation)| conversation).collect() }
        })
        .collect())
}

fn find(folder: &Path, depth: usize, into: &mut Vec<PathBuf>) -> Result<(), RecordingError> {
    let failed =
        |path: &Path, reason: String| RecordingError { path: path.display().to_string(), line: None, reason };
    if depth > MAX_DEPTH {
        return Err(failed(folder, format!("more than {MAX_DEPTH} folders in each other")));
    }
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, error.to_string()))? {
        let path = entry.map_err(|error| failed(folder, error.to_string()))?.path();
        if path.is_dir() {
            find(&path, depth + 1, into)?;
        } else if path.extension().is_some_and(|ending| ending == "json") {
            if into.len() == MAX_FILES {
                return Err(failed(folder, format!("more than {MAX_FILES} files")));
            }
            into.push(path);
        }
    }
    Ok(())
}

/// The path without the number at the end of its name, and that number.
fn split_name(path: &Path) -> (PathBuf, u64) {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    match name.rsplit_once('-').map(|(test, number)| (test, number.parse())) {
        Some((test, Ok(number))) => (path.with_file_name(test), number),
        _ => (path.with_file_name(&*name), 0),
    }
}

/// Reads one recording.
pub fn read_file(path: &Path) -> Result<Conversation, RecordingError> {
    let failed = |line, reason: String| RecordingError { path: path.display().to_string(), line, reason };
    let size = fs::metadata(path).map_err(|error| failed(None, error.to_string()))?.len();
    if size > MAX_FILE_BYTES {
        return Err(failed(None, format!("{size} bytes; at most {MAX_FILE_BYTES} are read")));
    }
    let text = fs::read_to_string(path).map_err(|error| failed(None, error.to_string()))?;
    let mut frames = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        frames.push(frame(index + 1, line).map_err(|reason| failed(Some(index + 1), reason))?);
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Conversation { name, frames: in_order(frames) })
}

/// The frames in the order in which they must have been sent. The recorder sometimes writes a client's `detach` after the
/// `end` of its session, and frames of the same moment with times that go back.
fn in_order(mut frames: Vec<Frame>) -> Vec<Frame> {
    let is = |frame: &Frame, kind: &str| frame.direction == Direction::Client && frame.kind == kind;
    if let Some(end) = frames.iter().position(|frame| is(frame, "End")) {
        let (late, mut rest): (Vec<_>, Vec<_>) =
            frames.split_off(end).into_iter().partition(|frame| is(frame, "Detach"));
        frames.extend(late);
        frames.append(&mut rest);
    }
    let mut latest = i128::MIN;
    for frame in &mut frames {
        latest = latest.max(frame.time);
        frame.time = latest;
    }
    frames
}

fn frame(number: usize, text: &str) -> Result<Frame, String> {
    let line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let time = OffsetDateTime::parse(&line.time, &Rfc3339).map_err(|error| format!("Time: {error}"))?;
    let (channel, body) = line.frame.map_or((0, Json::Null), |frame| (frame.header.channel, frame.body));
    Ok(Frame {
        line: number,
        time: time.unix_timestamp_nanos(),
        direction: line.direction,
        kind: line.frame_type,
        address: line.entity_path,
        link: line.link_name,
        client_receives: line.receiver,
        channel,
        body,
        message: line.message_data,
    })
}
