//! The scheduler of egress queues, as `-i` gives it: `scheduler=wfq:4:2:1`, or a tree such as
//! `scheduler=strict{q3+wfq{paced:4+q2:2+q0}:rate=40mbit}`.

use traffic_manager::{
    Below, DEPTH_MAX, Discipline, MaxRate, Scheduler, SchedulerChild, SchedulerNode,
};

use crate::queue_number::queue_number;
use crate::units::{self, within_line};

const NAMES: [(&str, Discipline); 3] = [
    ("strict", Discipline::Strict),
    ("drr", Discipline::Drr),
    ("wfq", Discipline::Wfq),
];

/// The leaf of the held packets.
const PACED: &str = "paced";

/// A scheduler by its words, for a port of this line rate.
///
/// # Errors
/// The text says what is wrong.
pub fn scheduler(text: &str, line_rate_bps: Option<u64>) -> Result<Scheduler, String> {
    if text.contains(['{', '}']) {
        return tree(text, line_rate_bps).map(Scheduler::Tree);
    }
    let (name, weights) = match text.split_once(':') {
        None => (text, None),
        Some((name, weights)) => (name, Some(weights)),
    };
    let weights = || -> Result<Vec<u32>, String> {
        let Some(weights) = weights else {
            return Err(format!("{name} needs weights, as in {name}:4:2:1"));
        };
        weights.split(':').map(weight).collect()
    };
    match name {
        "strict" if text == name => Ok(Scheduler::Strict),
        "drr" => Ok(Scheduler::Drr(weights()?)),
        "wfq" => Ok(Scheduler::Wfq(weights()?)),
        _ => Err(format!(
            "'{text}' is not strict, drr:WEIGHTS, wfq:WEIGHTS or a tree such as strict{{q2+wfq{{q1:4+q0}}}}"
        )),
    }
}

fn weight(text: &str) -> Result<u32, String> {
    let number = text.parse();
    number.map_err(|_| format!("weight '{text}' is no number"))
}

fn tree(text: &str, line_rate_bps: Option<u64>) -> Result<SchedulerNode, String> {
    let mut words = Words {
        text,
        at: 0,
        line_rate_bps,
    };
    let name = words.word();
    let mut root = words.node(name, 1)?;
    for setting in words.settings() {
        let setting = setting?;
        if !set_rate(&mut root, setting, line_rate_bps)? {
            return Err(format!("'{setting}': the root has a rate=, no weight"));
        }
    }
    match words.rest() {
        "" => Ok(root),
        rest => Err(format!("'{rest}' follows the end of the tree")),
    }
}

/// The text of a tree, and the place that has been reached in it.
struct Words<'a> {
    text: &'a str,
    at: usize,
    line_rate_bps: Option<u64>,
}

impl<'a> Words<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Takes a character if it is the next.
    fn take(&mut self, expected: char) -> bool {
        let found = self.rest().starts_with(expected);
        if found {
            self.at += expected.len_utf8();
        }
        found
    }

    /// Takes the characters until one that has a meaning of its own.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(['{', '}', '+', ':']).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    /// Takes the settings that follow, each after a colon.
    fn settings(&mut self) -> impl Iterator<Item = Result<&'a str, String>> {
        let mut seen = Vec::new();
        std::iter::from_fn(move || {
            let setting = self.take(':').then(|| self.word())?;
            let key = setting.split_once('=').map(|(key, _)| key);
            Some(match key {
                _ if setting.is_empty() => {
                    Err(format!("nothing follows the ':' before '{}'", self.rest()))
                }
                Some(key) if seen.contains(&key) => {
                    Err(format!("'{setting}': {key} is given twice"))
                }
                key => {
                    seen.extend(key);
                    Ok(setting)
                }
            })
        })
    }

    /// Takes a node whose name has been taken.
    fn node(&mut self, name: &str, depth: usize) -> Result<SchedulerNode, String> {
        let known = NAMES.iter().find(|(known, _)| *known == name);
        let Some((_, discipline)) = known else {
            return Err(format!(
                "'{name}' is not strict, drr, wfq or a queue such as q0, or {PACED}"
            ));
        };
        if depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} levels of nodes"));
        }
        if !self.take('{') {
            return Err(format!("{name} needs children, as in {name}{{q1+q0}}"));
        }
        let mut node = SchedulerNode {
            discipline: *discipline,
            children: Vec::new(),
            max_rate: None,
            min_rate_bps: None,
        };
        loop {
            let child = self.child(*discipline, depth)?;
            node.children.push(child);
            if self.take('}') {
                return Ok(node);
            }
            if !self.take('+') {
                return Err(match self.rest() {
                    "" => format!("{name} has no '}}'"),
                    rest => format!("'+' or '}}' is expected in place of '{rest}'"),
                });
            }
        }
    }

    /// Takes a child of a node at this depth.
    fn child(&mut self, above: Discipline, depth: usize) -> Result<SchedulerChild, String> {
        let word = self.word();
        let mut below = match queue_number(word)? {
            Some(queue) => Below::Queue(queue),
            None if word == PACED => Below::Paced,
            None => Below::Node(self.node(word, depth + 1)?),
        };
        let (mut given, line_rate_bps) = (None, self.line_rate_bps);
        for setting in self.settings() {
            let setting = setting?;
            let is_rate = match &mut below {
                Below::Node(node) => set_rate(node, setting, line_rate_bps)?,
                Below::Queue(queue) if setting.contains('=') => {
                    return Err(format!(
                        "'{setting}': write q{queue}.{setting} as an option of the port"
                    ));
                }
                Below::Paced if setting.contains('=') => {
                    return Err(format!("'{setting}': {PACED} has the rates of its classes"));
                }
                Below::Queue(_) | Below::Paced => false,
            };
            if is_rate {
                continue;
            }
            if above == Discipline::Strict {
                return Err(format!("'{setting}': a child of strict has no weight"));
            }
            if given.replace(weight(setting)?).is_some() {
                return Err(format!("'{setting}': {word} has two weights"));
            }
        }
        let weight = given.unwrap_or(1);
        Ok(SchedulerChild { weight, below })
    }
}

/// Takes a setting of a node; false if it is a weight.
fn set_rate(
    node: &mut SchedulerNode,
    setting: &str,
    line_rate_bps: Option<u64>,
) -> Result<bool, String> {
    match setting.split_once('=') {
        Some(("rate", rate)) => {
            let rate_bps = within_line(units::rate_bps(rate)?, line_rate_bps)?;
            node.max_rate = Some(MaxRate::bits(rate_bps));
        }
        Some(("burst", burst)) => match &mut node.max_rate {
            Some(MaxRate::Bits { burst_bytes, .. }) => *burst_bytes = units::bytes(burst)?,
            _ => return Err(format!("'{setting}' needs a rate before it")),
        },
        Some(("min", rate)) => {
            let rate_bps = within_line(units::rate_bps(rate)?, line_rate_bps)?;
            node.min_rate_bps = Some(rate_bps);
        }
        Some(_) => return Err(format!("'{setting}' is not rate=, burst= or min=")),
        None => return Ok(false),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(queue: u8, weight: u32) -> SchedulerChild {
        SchedulerChild {
            weight,
            below: Below::Queue(queue),
        }
    }

    #[test]
    fn a_tree_is_what_is_written() {
        let given = scheduler(
            "strict{q3+wfq{q2:4+drr{q1:2+q4}:3:min=1mbit+q0}:rate=40mbit:burst=3KB}",
            Some(40_000_000),
        );
        let drr = SchedulerNode {
            discipline: Discipline::Drr,
            children: vec![leaf(1, 2), leaf(4, 1)],
            max_rate: None,
            min_rate_bps: Some(1_000_000),
        };
        let wfq = SchedulerNode {
            discipline: Discipline::Wfq,
            children: vec![
                leaf(2, 4),
                SchedulerChild {
                    weight: 3,
                    below: Below::Node(drr),
                },
                leaf(0, 1),
            ],
            max_rate: Some(MaxRate::Bits {
                rate_bps: 40_000_000,
                burst_bytes: 3_072,
            }),
            min_rate_bps: None,
        };
        let strict = SchedulerNode {
            discipline: Discipline::Strict,
            children: vec![
                leaf(3, 1),
                SchedulerChild {
                    weight: 1,
                    below: Below::Node(wfq),
                },
            ],
            max_rate: None,
            min_rate_bps: None,
        };
        assert_eq!(given, Ok(Scheduler::Tree(strict)));
    }

    #[test]
    fn held_packets_are_a_leaf() {
        let given = scheduler("drr{paced:4+q0}", None);
        let paced = SchedulerChild {
            weight: 4,
            below: Below::Paced,
        };
        let drr = SchedulerNode {
            discipline: Discipline::Drr,
            children: vec![paced, leaf(0, 1)],
            max_rate: None,
            min_rate_bps: None,
        };
        assert_eq!(given, Ok(Scheduler::Tree(drr)));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let deep = "drr{".repeat(9) + "q0" + &"}".repeat(9);
        for (words, expected) in [
            ("fair", "'fair' is not strict, drr"),
            ("strict:1", "'strict:1' is not strict"),
            ("drr", "drr needs weights, as in drr:4:2:1"),
            ("wfq:1:", "weight '' is no number"),
            ("fair{q0}", "'fair' is not strict, drr, wfq or a queue"),
            ("wfq{q0+x1}", "'x1' is not strict, drr, wfq or a queue"),
            ("wfq{q0+}", "'' is not strict, drr, wfq or a queue"),
            ("wfq{q256}", "'q256' is not strict"),
            ("wfq{q00}", "'q00': write q0"),
            ("wfq{q0+drr}", "drr needs children, as in drr{q1+q0}"),
            ("wfq{q0", "wfq has no '}'"),
            ("wfq{q0{q1}}", "'+' or '}' is expected in place of '{q1}}'"),
            ("wfq{q0}}", "'}' follows the end"),
            ("wfq{q0}:3", "the root has a rate=, no weight"),
            ("wfq{q0:}", "nothing follows the ':' before '}'"),
            ("wfq{q0:many}", "weight 'many' is no number"),
            ("wfq{q0:1:2}", "q0 has two weights"),
            ("wfq{q0:rate=1mbit}", "write q0.rate=1mbit as an option"),
            (
                "wfq{paced:rate=1mbit}",
                "paced has the rates of its classes",
            ),
            ("wfq{paced:1:2}", "paced has two weights"),
            ("strict{q0:4}", "a child of strict has no weight"),
            ("wfq{drr{q0}:burst=1KB}", "'burst=1KB' needs a rate"),
            ("wfq{drr{q0}:rate=fast}", "'fast' is not a rate"),
            (
                "wfq{drr{q0}:rate=9kbit:rate=8kbit}",
                "'rate=8kbit': rate is given twice",
            ),
            (
                "wfq{q0}:rate=9kbit:burst=1KB:burst=2KB",
                "'burst=2KB': burst is given twice",
            ),
            ("wfq{drr{q0}:ceil=1mbit}", "is not rate=, burst= or min="),
            (
                "wfq{drr{q0}:rate=2mbit}",
                "rate 2mbit is above the port's line rate of 1mbit",
            ),
            (&deep, "more than 8 levels"),
        ] {
            let error = scheduler(words, Some(1_000_000)).expect_err(words);
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
