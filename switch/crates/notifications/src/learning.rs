//! BMv2's learning messages.

use v1model::entries::digest::DigestList;

/// A digest list as BMv2 sends it: a packed header in the byte order of the machine (topic, device,
/// context, list, buffer and number of samples), then the fields of each message, each in as many
/// bytes as it needs, most significant byte first.
pub fn learning_message(device_id: u64, list: &DigestList) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend_from_slice(b"LEA|");
    message.extend_from_slice(&device_id.to_ne_bytes());
    // The one context of simple_switch.
    message.extend_from_slice(&0_u32.to_ne_bytes());
    message.extend_from_slice(&list.json_id.to_ne_bytes());
    message.extend_from_slice(&list.list_id.to_ne_bytes());
    let samples = u32::try_from(list.messages.len()).unwrap_or(u32::MAX);
    message.extend_from_slice(&samples.to_ne_bytes());
    for fields in &list.messages {
        let length = fields.len().saturating_sub(list.headers);
        for field in fields.iter().take(length) {
            message.extend_from_slice(field);
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

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
