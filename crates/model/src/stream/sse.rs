//! Server-sent events: frames for data and for the reader's position.
//!
//! Every data event is followed by a control event. A carriage return or a newline in the
//! data starts a new `data:` line; otherwise a payload could forge events of its own.
//!
//! The id of an event is the offset after it. A browser's `EventSource` sends the last one when it reconnects.
//!
//! A reader gets the stored text, except for what the format cannot carry: every line end becomes
//! LF, and invalid UTF-8 becomes U+FFFD. Bytes are sent as base64 and arrive unchanged.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::content_type::Mode;
use super::json;
use super::offset::Offset;

/// How data is divided into events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As the protocol says: an event `data` for each batch, JSON values as an array.
    Batches,
    /// Unnamed events, which `onmessage` of a browser gets, one for each JSON value.
    Messages,
}

/// What a control event tells the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// The offset to continue from.
    pub next: Offset,
    /// What is known at that offset.
    pub state: State,
    /// Whether no data event is before it, which would have the id already.
    pub alone: bool,
}

/// What is known about the reader's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There is more to send.
    Behind {
        /// The cursor for the next request.
        cursor: u64,
    },
    /// Everything so far has been sent.
    UpToDate {
        /// The cursor for the next request.
        cursor: u64,
    },
    /// Everything has been sent and nothing will follow.
    Closed,
}

/// Appends the data events of a run of stored bytes that begins at `from`, in one or more pieces.
pub fn write_data(out: &mut Vec<u8>, form: Form, mode: Mode, from: Offset, stored: &[&[u8]]) {
    match (form, mode) {
        (Form::Messages, Mode::Json) => {
            let whole = stored.concat();
            let mut at = from;
            for value in json::stored_values(&whole) {
                at = at.plus(value.len() as u64 + 1);
                write_id(out, at);
                Lines::start(out).write(value);
                out.extend_from_slice(b"\n\n");
            }
            return;
        }
        (Form::Messages, _) => {}
        (Form::Batches, _) => out.extend_from_slice(b"event: data\n"),
    }
    write_id(out, from.plus(stored.iter().map(|piece| piece.len() as u64).sum()));
    match mode {
        Mode::Bytes => {
            out.extend_from_slice(b"data:");
            let text = match stored {
                [one] => STANDARD.encode(one),
                many => STANDARD.encode(many.concat()),
            };
            out.extend_from_slice(text.as_bytes());
        }
        Mode::Text => {
            let mut lines = Lines::start(out);
            for piece in stored {
                lines.write(piece);
            }
        }
        Mode::Json => {
            let mut lines = Lines::start(out);
            lines.write(b"[");
            for (index, piece) in stored.iter().enumerate() {
                let last = index + 1 == stored.len();
                lines.write(if last { piece.strip_suffix(b",").unwrap_or(piece) } else { piece });
            }
            lines.write(b"]");
        }
    }
    out.extend_from_slice(b"\n\n");
}

/// Appends the id line of an event. A reader keeps it for the events behind it too.
fn write_id(out: &mut Vec<u8>, offset: Offset) {
    out.extend_from_slice(b"id:");
    out.extend_from_slice(&offset.to_text());
    out.push(b'\n');
}

/// Appends a control event.
pub fn write_control(out: &mut Vec<u8>, control: Control) {
    use std::io::Write;
    let Control { next, state, alone } = control;
    out.extend_from_slice(b"event: control\n");
    if alone {
        write_id(out, next);
    }
    let written = match state {
        State::Behind { cursor } => {
            write!(out, "data:{{\"streamNextOffset\":\"{next}\",\"streamCursor\":\"{cursor}\"}}\n\n")
        }
        State::UpToDate { cursor } => write!(
            out,
            "data:{{\"streamNextOffset\":\"{next}\",\"streamCursor\":\"{cursor}\",\"upToDate\":true}}\n\n"
        ),
        State::Closed => {
            write!(out, "data:{{\"streamNextOffset\":\"{next}\",\"streamClosed\":true}}\n\n")
        }
    };
    written.expect("writing to memory does not fail");
}

/// `data:` lines. CR LF counts as one line end even when it is split between two pieces.
struct Lines<'a> {
    out: &'a mut Vec<u8>,
    after_return: bool,
    /// Nothing of the line is written yet.
    is_new: bool,
}

impl Lines<'_> {
    fn start(out: &mut Vec<u8>) -> Lines<'_> {
        out.extend_from_slice(b"data:");
        Lines { out, after_return: false, is_new: true }
    }

    fn write_part(&mut self, part: &[u8]) {
        // Readers remove one space after the colon: a line that begins with a space gets another.
        if self.is_new && part.first() == Some(&b' ') {
            self.out.push(b' ');
        }
        self.is_new &= part.is_empty();
        self.out.extend_from_slice(part);
    }

    fn write(&mut self, mut piece: &[u8]) {
        if self.after_return && piece.first() == Some(&b'\n') {
            piece = &piece[1..];
            self.after_return = false;
        }
        while let Some(end) = memchr::memchr2(b'\r', b'\n', piece) {
            self.write_part(&piece[..end]);
            self.out.extend_from_slice(b"\ndata:");
            self.is_new = true;
            let pair = piece[end] == b'\r' && piece.get(end + 1) == Some(&b'\n');
            self.after_return = piece[end] == b'\r' && end + 1 == piece.len();
            piece = &piece[end + 1 + usize::from(pair)..];
        }
        if !piece.is_empty() {
            self.write_part(piece);
            self.after_return = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reader as the standard describes it: UTF-8, lines that end in CR LF, LF or CR, one space
    /// after a colon removed, an event at each empty line if there is data.
    fn parse(stream: &[u8]) -> Vec<(String, String)> {
        parse_with_ids(stream).into_iter().map(|(name, data, _)| (name, data)).collect()
    }

    fn parse_with_ids(stream: &[u8]) -> Vec<(String, String, String)> {
        let text = String::from_utf8_lossy(stream);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let (mut events, mut name, mut data, mut id) = (vec![], String::new(), String::new(), String::new());
        for line in text.split_terminator('\n') {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if line.is_empty() => {
                    let data = std::mem::take(&mut data);
                    let name = std::mem::take(&mut name);
                    if let Some(data) = data.strip_suffix('\n') {
                        events.push((name, data.to_owned(), id.clone()));
                    }
                }
                "event" => value.clone_into(&mut name),
                "data" => data.extend([value, "\n"]),
                "id" => value.clone_into(&mut id),
                _ => panic!("a stray line: {line:?}"),
            }
        }
        assert!(data.is_empty() && name.is_empty(), "an event without an end");
        events
    }

    fn framed(mode: Mode, pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut out = vec![];
        write_data(&mut out, Form::Batches, mode, Offset::ZERO, pieces);
        write_control(&mut out, Control { next: Offset::new(7), state: State::Closed, alone: false });
        parse(&out)
    }

    proptest! {
        /// S02: text arrives unchanged, except that line ends are LF and invalid UTF-8 is U+FFFD,
        /// wherever it is cut in pieces. No payload can end its event or begin another.
        #[test]
        fn text_comes_back_as_far_as_the_format_can(
            bytes in prop::collection::vec(
                prop_oneof![
                    8 => prop::sample::select(b" :\r\n\0adt".to_vec()),
                    2 => prop::sample::select("é€\u{feff}\u{2028}".as_bytes().to_vec()),
                    1 => any::<u8>(),
                ],
                0..30,
            ),
            cut in 0..30usize,
        ) {
            let cut = cut.min(bytes.len());
            let events = framed(Mode::Text, &[&bytes[..cut], &bytes[cut..]]);
            let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n").replace('\r', "\n");
            prop_assert_eq!(events.len(), 2);
            prop_assert_eq!(&events[0].0, "data");
            prop_assert_eq!(&events[0].1, &text);
            prop_assert_eq!(&events[1].0, "control");
        }

        #[test]
        fn bytes_come_back_as_they_were(bytes in prop::collection::vec(any::<u8>(), 0..50), cut in 0..50usize) {
            let cut = cut.min(bytes.len());
            let events = framed(Mode::Bytes, &[&bytes[..cut], &bytes[cut..]]);
            prop_assert_eq!(STANDARD.decode(&events[0].1).unwrap(), bytes);
        }
    }

    /// Single cases, and their bytes on the wire.
    #[test]
    fn odd_texts_come_back() {
        for (stored, read) in [
            ("a", "a"),
            ("", ""),
            (" a", " a"),
            ("  a", "  a"),
            (" ", " "),
            (":a", ":a"),
            ("data: a\n\nevent: x", "data: a\n\nevent: x"),
            ("a\n", "a\n"),
            ("a\n\n b", "a\n\n b"),
            ("a\r\nb", "a\nb"),
            ("a\rb", "a\nb"),
            ("a\r", "a\n"),
            ("\r\r\n\n", "\n\n\n"),
            ("a\0b", "a\0b"),
            ("\u{feff}a", "\u{feff}a"),
        ] {
            assert_eq!(framed(Mode::Text, &[stored.as_bytes()])[0].1, read, "{stored:?}");
        }
        assert_eq!(framed(Mode::Text, &[b"a\xffb\xc3"])[0].1, "a\u{fffd}b\u{fffd}");
        let mut out = vec![];
        write_data(&mut out, Form::Batches, Mode::Text, Offset::ZERO, &[b"a\n b"]);
        let id = "id:0000000000000000_0000000000000004";
        assert_eq!(String::from_utf8(out).unwrap(), format!("event: data\n{id}\ndata:a\ndata:  b\n\n"));
    }

    #[test]
    fn json_values_become_one_array() {
        let events = framed(Mode::Json, &[b"{\"a\":\r\n1},", b"2,"]);
        let array: serde_json::Value = serde_json::from_str(&events[0].1).unwrap();
        assert_eq!(array, serde_json::json!([{ "a": 1 }, 2]));
    }

    /// S02: a browser gets every value as one message, with the offset behind it as its id.
    #[test]
    fn messages_are_single_values_with_their_offsets() {
        let run = json::flatten(br#"[{"a": [1, "],\n"]}, -2.5e3, "x,", [], null, "\u2028"]"#).unwrap();
        for cut in 0..run.data.len() {
            let mut out = vec![];
            let pieces = [&run.data[..cut], &run.data[cut..]];
            write_data(&mut out, Form::Messages, Mode::Json, Offset::new(100), &pieces);
            let events = parse_with_ids(&out);
            let ids = run.ends.iter().map(|end| Offset::new(100 + u64::from(*end)).to_string());
            assert_eq!(
                events.iter().map(|event| event.2.clone()).collect::<Vec<_>>(),
                ids.collect::<Vec<_>>()
            );
            let values = r#"[{"a":[1,"],\n"]},-2.5e3,"x,",[],null,"\u2028"]"#;
            let all = events.iter().map(|(name, data, _)| {
                assert_eq!(name, "", "onmessage gets only events without a name");
                serde_json::from_str::<serde_json::Value>(data).unwrap()
            });
            let values: Vec<serde_json::Value> = serde_json::from_str(values).unwrap();
            assert_eq!(all.collect::<Vec<_>>(), values);
        }
        let mut out = vec![];
        write_data(&mut out, Form::Messages, Mode::Text, Offset::new(5), &[b"a\nb"]);
        assert_eq!(parse(&out), [(String::new(), "a\nb".to_owned())]);
    }

    #[test]
    fn control_says_where_the_reader_stands() {
        let control = |state| {
            let mut out = vec![];
            write_control(&mut out, Control { next: Offset::new(5), state, alone: true });
            serde_json::from_str::<serde_json::Value>(&parse(&out)[0].1).unwrap()
        };
        let next = "0000000000000000_0000000000000005";
        assert_eq!(
            control(State::Behind { cursor: 3 }),
            serde_json::json!({ "streamNextOffset": next, "streamCursor": "3" })
        );
        assert_eq!(
            control(State::UpToDate { cursor: 3 }),
            serde_json::json!({ "streamNextOffset": next, "streamCursor": "3", "upToDate": true })
        );
        assert_eq!(
            control(State::Closed),
            serde_json::json!({ "streamNextOffset": next, "streamClosed": true })
        );
    }
}
