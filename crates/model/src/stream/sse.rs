//! Server-sent events: frames for data and for the reader's position.
//!
//! Every data event is followed by a control event. A carriage return or a newline in the
//! data starts a new `data:` line; otherwise a payload could forge events of its own.
//!
//! A reader gets the stored text, except for what the format cannot carry: every line end becomes
//! LF, and invalid UTF-8 becomes U+FFFD. Bytes are sent as base64 and arrive unchanged.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::content_type::Mode;
use super::offset::Offset;

/// What a control event tells the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// The offset to continue from.
    pub next: Offset,
    /// What is known at that offset.
    pub state: State,
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

/// Appends a data event. `stored` is a run of stored bytes in one or more pieces.
pub fn write_data(out: &mut Vec<u8>, mode: Mode, stored: &[&[u8]]) {
    out.extend_from_slice(b"event: data\n");
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

/// Appends a control event.
pub fn write_control(out: &mut Vec<u8>, control: Control) {
    use std::io::Write;
    let next = control.next;
    let written = match control.state {
        State::Behind { cursor } => {
            write!(
                out,
                "event: control\ndata:{{\"streamNextOffset\":\"{next}\",\"streamCursor\":\"{cursor}\"}}\n\n"
            )
        }
        State::UpToDate { cursor } => write!(
            out,
            "event: control\ndata:{{\"streamNextOffset\":\"{next}\",\"streamCursor\":\"{cursor}\",\"upToDate\":true}}\n\n"
        ),
        State::Closed => {
            write!(out, "event: control\ndata:{{\"streamNextOffset\":\"{next}\",\"streamClosed\":true}}\n\n")
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
        let text = String::from_utf8_lossy(stream);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let (mut events, mut name, mut data) = (vec![], String::new(), String::new());
        for line in text.split_terminator('\n') {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if line.is_empty() => {
                    let data = std::mem::take(&mut data);
                    let name = std::mem::take(&mut name);
                    if let Some(data) = data.strip_suffix('\n') {
                        events.push((name, data.to_owned()));
                    }
                }
                "event" => value.clone_into(&mut name),
                "data" => data.extend([value, "\n"]),
                _ => panic!("a stray line: {line:?}"),
            }
        }
        assert!(data.is_empty() && name.is_empty(), "an event without an end");
        events
    }

    fn framed(mode: Mode, pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut out = vec![];
        write_data(&mut out, mode, pieces);
        write_control(&mut out, Control { next: Offset::new(7), state: State::Closed });
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
        write_data(&mut out, Mode::Text, &[b"a\n b"]);
        assert_eq!(String::from_utf8(out).unwrap(), "event: data\ndata:a\ndata:  b\n\n");
    }

    #[test]
    fn json_values_become_one_array() {
        let events = framed(Mode::Json, &[b"{\"a\":\r\n1},", b"2,"]);
        let array: serde_json::Value = serde_json::from_str(&events[0].1).unwrap();
        assert_eq!(array, serde_json::json!([{ "a": 1 }, 2]));
    }

    #[test]
    fn control_says_where_the_reader_stands() {
        let control = |state| {
            let mut out = vec![];
            write_control(&mut out, Control { next: Offset::new(5), state });
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
