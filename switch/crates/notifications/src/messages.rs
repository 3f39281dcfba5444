//! BMv2's messages: a packed header of 32 bytes with topic, device and more, then a list. Numbers have the
//! byte order of the machine.

use v1model::entries::digest::{DigestList, IdleEntry};

/// The one context of simple_switch.
const CONTEXT: u32 = 0;

/// Bytes at the end of the header of a message of ports.
const PORTS_PADDING: [u8; 16] = [0; 16];

/// The beginning of a message.
fn begin(topic: &[u8; 4], device_id: u64) -> Vec<u8> {
    let mut message = topic.to_vec();
    message.extend_from_slice(&device_id.to_ne_bytes());
    message
}

/// The length of a list.
fn count(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes()
}

/// A digest list: context, list, buffer and number of samples, then the fields of each message, each in
/// as many bytes as it needs, most significant byte first.
pub fn learning_message(device_id: u64, list: &DigestList) -> Vec<u8> {
    let mut message = begin(b"LEA|", device_id);
    message.extend_from_slice(&CONTEXT.to_ne_bytes());
    message.extend_from_slice(&list.json_id.to_ne_bytes());
    message.extend_from_slice(&list.list_id.to_ne_bytes());
    message.extend_from_slice(&count(list.messages.len()));
    for fields in &list.messages {
        let length = fields.len().saturating_sub(list.headers);
        for field in fields.iter().take(length) {
            message.extend_from_slice(field);
        }
    }
    message
}

/// Idle entries, a message for each table: context, buffer, table and number of entries, then the handles of
/// the entries. The entries of a table come one after another. `buffer` is the number of the next message. An
/// entry without a handle is left out.
pub fn ageing_messages(device_id: u64, buffer: &mut u64, entries: &[IdleEntry]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    for of_table in entries.chunk_by(|one, next| one.json_id == next.json_id) {
        let handles: Vec<u32> = of_table.iter().filter_map(|entry| entry.handle).collect();
        let Some(first) = of_table.first().filter(|_| !handles.is_empty()) else {
            continue;
        };
        let mut message = begin(b"AGE|", device_id);
        message.extend_from_slice(&CONTEXT.to_ne_bytes());
        message.extend_from_slice(&buffer.to_ne_bytes());
        message.extend_from_slice(&first.json_id.to_ne_bytes());
        message.extend_from_slice(&count(handles.len()));
        for handle in handles {
            message.extend_from_slice(&handle.to_ne_bytes());
        }
        *buffer += 1;
        messages.push(message);
    }
    messages
}

/// Ports that have gone up (true) or down: their number, then the port and 1 or 0 for each.
pub fn ports_message(device_id: u64, ports: &[(u16, bool)]) -> Vec<u8> {
    let mut message = begin(b"PRT|", device_id);
    message.extend_from_slice(&count(ports.len()));
    message.extend_from_slice(&PORTS_PADDING);
    for (port, up) in ports {
        message.extend_from_slice(&i32::from(*port).to_ne_bytes());
        message.extend_from_slice(&i32::from(*up).to_ne_bytes());
    }
    message
}

#[cfg(test)]
mod tests {
    use v1model::entries::EntryKey;

    use super::*;

    /// The numbers of a message as clients on a little-endian machine see them.
    fn numbers(message: &[u8]) -> Vec<u32> {
        let words = message.chunks_exact(4);
        words
            .map(|word| u32::from_ne_bytes(word.try_into().expect("four bytes")))
            .collect()
    }

    #[test]
    fn idle_entries_of_each_table_have_a_message() {
        let entry = |json_id, handle| IdleEntry {
            table: 0,
            json_id,
            key: EntryKey {
                fields: Vec::new(),
                priority: 0,
            },
            handle,
            timeout_ns: 1,
        };
        let entries = [
            entry(2, Some(7)),
            entry(2, None),
            entry(2, Some(1 << 24)),
            entry(5, Some(0)),
            entry(6, None),
        ];
        let mut buffer = 8;
        let messages = ageing_messages(3, &mut buffer, &entries);
        assert_eq!(buffer, 10);
        assert_eq!(messages.len(), 2);
        let (first, second) = (&messages[0], &messages[1]);
        assert!(first.starts_with(b"AGE|") && second.starts_with(b"AGE|"));
        assert_eq!(first[4..12], 3_u64.to_ne_bytes());
        assert_eq!(first[16..24], 8_u64.to_ne_bytes());
        assert_eq!(second[16..24], 9_u64.to_ne_bytes());
        // Context; table, number of entries, handles.
        assert_eq!(numbers(&first[12..16]), [0]);
        assert_eq!(numbers(&first[24..]), [2, 2, 7, 1 << 24]);
        assert_eq!(numbers(&second[24..]), [5, 1, 0]);
    }

    #[test]
    fn ports_have_a_message_together() {
        let message = ports_message(3, &[(1, true), (300, false)]);
        assert!(message.starts_with(b"PRT|"));
        assert_eq!(message[4..12], 3_u64.to_ne_bytes());
        assert_eq!(numbers(&message[12..16]), [2]);
        assert_eq!(message[16..32], [0; 16]);
        assert_eq!(numbers(&message[32..]), [1, 1, 300, 0]);
    }

    #[test]
    fn a_message_of_two_samples() {
        let sample = |mac: u8| -> Vec<Box<[u8]>> {
            vec![
                [0, 0, 10, 0, 0, mac].into(),
                [0, mac].into(),
                // Whether the packet has the header.
                [1].into(),
            ]
        };
        let list = DigestList {
            digest: 0,
            json_id: 1,
            list_id: 7,
            messages: vec![sample(1), sample(2)],
            headers: 1,
        };
        let message = learning_message(3, &list);
        let (header, samples) = message.split_at(32);
        assert_eq!(&header[..4], b"LEA|");
        assert_eq!(header[4..12], 3_u64.to_ne_bytes());
        assert_eq!(header[16..20], 1_u32.to_ne_bytes());
        assert_eq!(header[20..28], 7_u64.to_ne_bytes());
        assert_eq!(header[28..], 2_u32.to_ne_bytes());
        assert_eq!(samples, [0, 0, 10, 0, 0, 1, 0, 1, 0, 0, 10, 0, 0, 2, 0, 2]);
    }
}
