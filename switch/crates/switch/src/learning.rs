//! Digests: collects messages into lists for the controllers. A message that recurs is not sent again
//! until its list is acknowledged (P4Runtime specification, section "DigestEntry").

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use v1model::entries::digest::DigestConfig;

/// Most messages of a list, even if the controller allows more. A list of the widest digest fits in
/// a gRPC message.
const LIST_MESSAGES_MAX: usize = 4_096;

/// Most messages of one digest that are sent and not acknowledged. Beyond that the oldest lists are
/// forgotten, and their messages may be sent again.
const UNACKNOWLEDGED_MAX: usize = 1 << 17;

/// Most lists that wait to be sent. Further ones are lost and counted.
const READY_LISTS_MAX: usize = 1_024;

/// A message: the words of its fields.
type Message = Arc<[u64]>;

/// A list that is ready to be sent.
#[derive(Debug)]
pub(crate) struct ReadyList {
    pub(crate) digest: usize,
    pub(crate) list_id: u64,
    pub(crate) messages: Vec<Message>,
}

/// One digest whose messages are collected.
#[derive(Debug, Default)]
struct Learner {
    config: DigestConfig,
    /// The list being collected.
    list: Vec<Message>,
    /// The time when it is sent, unless it is full before.
    due_ns: u64,
    next_list_id: u64,
    /// Lists that are sent and not acknowledged, with the time of sending. Later lists have larger
    /// ids.
    sent: BTreeMap<u64, (u64, Vec<Message>)>,
    sent_messages: usize,
    /// Messages of `list` and `sent`.
    known: HashSet<Message>,
}

impl Learner {
    /// Forgets a list that was sent.
    fn forget(&mut self, list_id: u64) {
        if let Some((_, messages)) = self.sent.remove(&list_id) {
            self.sent_messages -= messages.len();
            for message in messages {
                self.known.remove(&message);
            }
        }
    }

    /// Forgets lists that were not acknowledged in time.
    fn expire(&mut self, now_ns: u64) {
        while let Some((&list_id, (sent_ns, _))) = self.sent.first_key_value()
            && (now_ns.saturating_sub(*sent_ns) >= self.config.ack_timeout_ns
                || self.sent_messages > UNACKNOWLEDGED_MAX)
        {
            self.forget(list_id);
        }
    }

    /// Takes the list that is being collected, or its beginning if it is longer than a list may be.
    fn take_list(&mut self, now_ns: u64) -> (u64, Vec<Message>) {
        let size = self.list_size().min(self.list.len());
        let rest = self.list.split_off(size);
        let messages = std::mem::replace(&mut self.list, rest);
        self.next_list_id += 1;
        let list_id = self.next_list_id;
        self.sent_messages += messages.len();
        self.sent.insert(list_id, (now_ns, messages.clone()));
        self.expire(now_ns);
        (list_id, messages)
    }

    /// Messages that fill a list.
    fn list_size(&self) -> usize {
        match usize::try_from(self.config.max_list_size) {
            _ if self.config.max_timeout_ns == 0 => 1,
            Ok(size @ 1..) => size.min(LIST_MESSAGES_MAX),
            _ => LIST_MESSAGES_MAX,
        }
    }
}

/// All digests of a program.
#[derive(Debug, Default)]
pub(crate) struct Learning {
    /// By digest; `None`: not collected.
    learners: Vec<Option<Learner>>,
    /// Digests that were removed since the last packet, with their collected messages, so that the
    /// removal can be undone without a trace.
    removed: Vec<(usize, Learner)>,
    ready: VecDeque<ReadyList>,
    /// Earliest time at which a list must be sent.
    due_ns: Option<u64>,
}

impl Learning {
    pub(crate) fn config(&self, digest: usize) -> Option<DigestConfig> {
        let learner = self.learners.get(digest)?.as_ref()?;
        Some(learner.config)
    }

    /// Starts collecting a digest's messages, changes the settings, or stops. Messages collected so far
    /// are sent by the new settings, or not at all.
    pub(crate) fn configure(&mut self, digest: usize, config: Option<DigestConfig>, now_ns: u64) {
        if self.learners.len() <= digest {
            self.learners.resize_with(digest + 1, || None);
        }
        let Some(slot) = self.learners.get_mut(digest) else {
            return debug_assert!(false, "room has just been made for digest {digest}");
        };
        match config {
            None => self
                .removed
                .extend(slot.take().map(|learner| (digest, learner))),
            Some(config) => {
                let removed = self.removed.iter().rposition(|(of, _)| *of == digest);
                let learner = slot.get_or_insert_with(|| match removed {
                    Some(at) => self.removed.swap_remove(at).1,
                    None => Learner::default(),
                });
                learner.config = config;
                learner.expire(now_ns);
                if learner.list.len() >= learner.list_size() {
                    // Enough for a list, or several, by now.
                    learner.due_ns = now_ns;
                } else if !learner.list.is_empty() {
                    let due_ns = now_ns.saturating_add(config.max_timeout_ns);
                    learner.due_ns = learner.due_ns.min(due_ns);
                }
            }
        }
        self.find_due();
    }

    pub(crate) fn acknowledge(&mut self, digest: usize, list_id: u64) {
        if let Some(Some(learner)) = self.learners.get_mut(digest) {
            learner.forget(list_id);
        }
    }

    /// Forgets a digest's messages, those that were sent and those that were not. Its settings stay, and its
    /// lists' ids go on.
    pub(crate) fn reset(&mut self, digest: usize) {
        if let Some(Some(learner)) = self.learners.get_mut(digest) {
            *learner = Learner {
                config: learner.config,
                next_list_id: learner.next_list_id,
                ..Learner::default()
            };
        }
        self.ready.retain(|list| list.digest != digest);
        self.find_due();
    }

    /// Whether messages of this digest are collected.
    pub(crate) fn wants(&self, digest: usize) -> bool {
        matches!(self.learners.get(digest), Some(Some(_)))
    }

    /// Adds a packet's message. Returns the number of messages lost for lack of room.
    pub(crate) fn learn(&mut self, digest: usize, words: &[u64], now_ns: u64) -> u64 {
        self.removed.clear();
        let Some(Some(learner)) = self.learners.get_mut(digest) else {
            return 0;
        };
        learner.expire(now_ns);
        if learner.known.contains(words) {
            return 0;
        }
        let message: Message = words.into();
        learner.known.insert(Arc::clone(&message));
        if learner.list.is_empty() {
            learner.due_ns = now_ns.saturating_add(learner.config.max_timeout_ns);
        }
        learner.list.push(message);
        let lost = if learner.list.len() >= learner.list_size() {
            self.make_ready(digest, now_ns)
        } else {
            0
        };
        self.find_due();
        lost
    }

    /// Queues the list of a collected digest. Returns the number of messages lost because the queue is
    /// full.
    fn make_ready(&mut self, digest: usize, now_ns: u64) -> u64 {
        let Some(Some(learner)) = self.learners.get_mut(digest) else {
            debug_assert!(false, "digest {digest} is not collected");
            return 0;
        };
        let (list_id, messages) = learner.take_list(now_ns);
        if self.ready.len() >= READY_LISTS_MAX {
            learner.forget(list_id);
            return messages.len() as u64;
        }
        self.ready.push_back(ReadyList {
            digest,
            list_id,
            messages,
        });
        0
    }

    fn find_due(&mut self) {
        let learners = self.learners.iter().flatten();
        let collected = learners.filter(|learner| !learner.list.is_empty());
        self.due_ns = if self.ready.is_empty() {
            collected.map(|learner| learner.due_ns).min()
        } else {
            Some(0)
        };
    }

    /// The time when a list must be sent. 0: one is ready.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// The next list that must be sent by `now_ns`.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<ReadyList> {
        self.removed.clear();
        if self.due_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return None;
        }
        if self.ready.is_empty() {
            let due = self.learners.iter().position(|learner| {
                let learner = learner.as_ref();
                learner.is_some_and(|learner| !learner.list.is_empty() && learner.due_ns <= now_ns)
            })?;
            let lost = self.make_ready(due, now_ns);
            debug_assert_eq!(lost, 0, "the queue of lists is empty");
        }
        let list = self.ready.pop_front();
        self.find_due();
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: DigestConfig = DigestConfig {
        max_timeout_ns: 100,
        max_list_size: 2,
        ack_timeout_ns: 1_000,
    };

    fn learning(config: DigestConfig) -> Learning {
        let mut learning = Learning::default();
        learning.configure(0, Some(config), 0);
        learning
    }

    fn take(learning: &mut Learning, now_ns: u64) -> Option<(u64, Vec<u64>)> {
        let list = learning.take(now_ns)?;
        let first = |message: &Message| message.first().copied().unwrap_or(0);
        Some((list.list_id, list.messages.iter().map(first).collect()))
    }

    #[test]
    fn a_removal_that_is_taken_back_leaves_no_trace() {
        let mut learning = learning(CONFIG);
        learning.learn(0, &[1], 10);
        learning.learn(0, &[2], 10);
        assert_eq!(take(&mut learning, 10), Some((1, vec![1, 2])));
        learning.learn(0, &[3], 20);
        learning.configure(0, None, 30);
        learning.configure(0, Some(CONFIG), 30);
        // Messages that were sent are known, collected ones are sent at their time, and ids go on.
        learning.learn(0, &[1], 40);
        assert_eq!(take(&mut learning, 120), Some((2, vec![3])));

        // After a packet it is a new beginning.
        learning.configure(0, None, 130);
        assert_eq!(take(&mut learning, 140), None);
        learning.configure(0, Some(CONFIG), 150);
        learning.learn(0, &[1], 160);
        assert_eq!(take(&mut learning, 260), Some((1, vec![1])));
    }

    #[test]
    fn a_list_is_sent_when_full_or_due() {
        let mut learning = learning(CONFIG);
        assert_eq!(learning.due_ns(), None);
        learning.learn(0, &[1], 10);
        // A duplicate neither counts nor puts the time off.
        learning.learn(0, &[1], 50);
        assert_eq!(learning.due_ns(), Some(110));
        assert_eq!(take(&mut learning, 109), None);
        assert_eq!(take(&mut learning, 110), Some((1, vec![1])));
        assert_eq!(learning.due_ns(), None);
        learning.learn(0, &[2], 120);
        learning.learn(0, &[3], 121);
        assert_eq!(take(&mut learning, 121), Some((2, vec![2, 3])));
        assert_eq!(take(&mut learning, 10_000), None);
    }

    #[test]
    fn a_message_is_sent_again_after_acknowledgement_or_timeout() {
        let mut learning = learning(DigestConfig {
            max_list_size: 1,
            ..CONFIG
        });
        learning.learn(0, &[1], 0);
        assert_eq!(take(&mut learning, 0), Some((1, vec![1])));
        learning.learn(0, &[1], 999);
        assert_eq!(take(&mut learning, 999), None);
        learning.learn(0, &[1], 1_000);
        assert_eq!(take(&mut learning, 1_000), Some((2, vec![1])));
        // Another list's acknowledgement changes nothing.
        learning.acknowledge(0, 1);
        learning.acknowledge(7, 2);
        learning.learn(0, &[1], 1_001);
        assert_eq!(take(&mut learning, 1_001), None);
        learning.acknowledge(0, 2);
        learning.learn(0, &[1], 1_002);
        assert_eq!(take(&mut learning, 1_002), Some((3, vec![1])));
    }

    #[test]
    fn a_reset_forgets_messages_but_not_settings() {
        let mut learning = learning(CONFIG);
        learning.configure(1, Some(CONFIG), 0);
        for digest in [0, 1] {
            learning.learn(digest, &[1], 0);
            learning.learn(digest, &[2], 0);
            learning.learn(digest, &[3], 0);
        }
        assert_eq!(take(&mut learning, 0), Some((1, vec![1, 2])));
        learning.reset(1);
        learning.reset(7);
        // The other digest's messages are still collected.
        assert_eq!(learning.due_ns(), Some(100));
        learning.reset(0);
        assert_eq!(learning.due_ns(), None);
        assert_eq!(learning.config(0), Some(CONFIG));
        learning.learn(0, &[1], 10);
        assert_eq!(take(&mut learning, 110), Some((2, vec![1])));
    }

    #[test]
    fn a_list_is_never_longer_than_it_may_be_by_now() {
        let many = DigestConfig {
            max_list_size: 100,
            ..CONFIG
        };
        let mut learning = learning(many);
        for word in 0..5 {
            learning.learn(0, &[word], 0);
        }
        assert_eq!(take(&mut learning, 10), None);
        learning.configure(0, Some(CONFIG), 10);
        assert_eq!(take(&mut learning, 10), Some((1, vec![0, 1])));
        assert_eq!(take(&mut learning, 10), Some((2, vec![2, 3])));
        learning.learn(0, &[5], 11);
        assert_eq!(take(&mut learning, 11), Some((3, vec![4, 5])));
        assert_eq!(take(&mut learning, 10_000), None);
    }

    #[test]
    fn without_timeouts_every_message_is_sent_at_once() {
        let mut learning = learning(DigestConfig::default());
        for now_ns in 1..=3 {
            learning.learn(0, &[1], 5);
            assert_eq!(take(&mut learning, 5), Some((now_ns, vec![1])));
        }
    }

    #[test]
    fn lists_that_nobody_takes_are_lost_and_counted() {
        let mut learning = learning(DigestConfig {
            max_list_size: 1,
            ..CONFIG
        });
        let words = 0..READY_LISTS_MAX as u64 + 3;
        let lost: u64 = words.map(|word| learning.learn(0, &[word], 0)).sum();
        assert_eq!(lost, 3);
        // A lost message is sent when it recurs.
        take(&mut learning, 0).expect("the first");
        assert_eq!(learning.learn(0, &[READY_LISTS_MAX as u64], 0), 0);
    }

    #[test]
    fn what_nobody_acknowledges_is_forgotten_in_the_end() {
        let mut learning = learning(DigestConfig {
            max_list_size: 0,
            max_timeout_ns: u64::MAX,
            ack_timeout_ns: u64::MAX,
        });
        let lists = UNACKNOWLEDGED_MAX / LIST_MESSAGES_MAX + 1;
        for word in 0..lists * LIST_MESSAGES_MAX {
            assert_eq!(learning.learn(0, &[word as u64], 0), 0);
            let _ = learning.take(0);
        }
        let learner = learning.learners[0].as_ref().expect("configured");
        assert_eq!(learner.sent_messages, UNACKNOWLEDGED_MAX);
        assert_eq!(learner.known.len(), learner.sent_messages);
        learning.configure(0, None, 0);
        assert!(!learning.wants(0));
    }
}
