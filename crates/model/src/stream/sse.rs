//! Server-sent events: how a batch of bytes and the reader's position are framed.
//!
//! Every data event is followed by a control event. A carriage return or a newline in the
//! data starts a new `data:` line; otherwise a payload could forge events of its own.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::content_type::Mode;
use super::offset::Offset;

/// What a control event tells the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// Where to go on.
    pub next: Offset,
    /// What else is known there.
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
    /// Everything there is has been sent.
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
}

impl Lines<'_> {
    fn start(out: &mut Vec<u8>) -> Lines<'_> {
        // No space after the colon: readers take exactly one away.
        out.extend_from_slice(b"data:");
        Lines { out, after_return: false }
    }

    fn write(&mut self, mut piece: &[u8]) {
        if self.after_return && piece.first() == Some(&b'\n') {
            piece = &piece[1..];
            self.after_return = false;
        }
        while let Some(end) = memchr::memchr2(b'\r', b'\n', piece) {
            self.out.extend_from_slice(&piece[..end]);
            self.out.extend_from_slice(b"\ndata:");
            let pair = piece[end] == b'\r' && piece.get(end + 1) == Some(&b'\n');
            self.after_return = piece[end] == b'\r' && end + 1 == piece.len();
            piece = &piece[end + 1 + usize::from(pair)..];
        }
        if !piece.is_empty() {
            self.out.extend_from_slice(piece);
            self.after_return = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reader as the standard describes it.
    fn parse(stream: &[u8]) -> Vec<(String, String)> {
        let text = String::from_utf8_lossy(stream).replace("\r\n", "\n").replace('\r', "\n");
        let mut events = vec![];
        for block in text.split("\n\n").filter(|block| !block.is_empty()) {
            let mut event = (String::new(), vec![]);
            for line in block.split('\n') {
                match line.split_once(':') {
                    Some(("event", name)) => event.0 = name.trim().to_owned(),
                    Some(("data", data)) => event.1.push(data.strip_prefix(' ').unwrap_or(data)),
                    _ => panic!("a stray line: {line:?}"),
                }
            }
            events.push((event.0, event.1.join("\n")));
        }
        events
    }

    fn framed(mode: Mode, pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut out = vec![];
        write_data(&mut out, mode, pieces);
        write_control(&mut out, Control { next: Offset::new(7), state: State::Closed });
        parse(&out)
    }

    proptest! {
        /// No payload can end its event or begin another.
        #[test]
        fn text_stays_inside_its_event(text in "[a-c:\\r\\n ]{0,20}", cut in 0..20usize) {
            // A leading space is the one thing the standard itself takes away.
            prop_assume!(!text.split(['\r', '\n']).any(|line| line.starts_with(' ')));
            let cut = cut.min(text.len());
            let events = framed(Mode::Text, &[&text.as_bytes()[..cut], &text.as_bytes()[cut..]]);
            prop_assert_eq!(events.len(), 2);
            prop_assert_eq!(&events[0].0, "data");
            prop_assert_eq!(&events[0].1, &text.replace("\r\n", "\n").replace('\r', "\n"));
            prop_assert_eq!(&events[1].0, "control");
        }

        #[test]
        fn bytes_come_back_as_they_were(bytes in prop::collection::vec(any::<u8>(), 0..50), cut in 0..50usize) {
            let cut = cut.min(bytes.len());
            let events = framed(Mode::Bytes, &[&bytes[..cut], &bytes[cut..]]);
            prop_assert_eq!(STANDARD.decode(&events[0].1).unwrap(), bytes);
        }
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
