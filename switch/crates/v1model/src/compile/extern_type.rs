//! The types of externs that the switch has.

/// A type of externs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExternType {
    /// Time, and packets that are held until their departure time.
    TrafficManager,
    /// The egress queues of ports.
    EgressQueues,
}

impl ExternType {
    const ALL: [Self; 2] = [Self::TrafficManager, Self::EgressQueues];

    /// Its name in programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TrafficManager => "TrafficManager",
            Self::EgressQueues => "EgressQueues",
        }
    }

    /// The type of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.name() == name)
    }

    /// The method of this type that a primitive calls: p4c writes `_Type_method`.
    pub fn method(self, op: &str) -> Option<&str> {
        op.strip_prefix('_')?
            .strip_prefix(self.name())?
            .strip_prefix('_')
    }

    /// The type and the method of it that a primitive calls.
    pub fn of_call(op: &str) -> Option<(Self, &str)> {
        let mut all = Self::ALL.into_iter();
        all.find_map(|of| Some((of, of.method(op)?)))
    }

    /// Whether a method can be called in ingress only: it decides where the packet goes from there.
    pub fn is_ingress_only(self, method: &str) -> bool {
        matches!(
            (self, method),
            (Self::TrafficManager, "hold") | (Self::EgressQueues, "choose")
        )
    }
}
