//! Notifies systemd of the switch's state (sd_notify(3)): ready, alive, ending.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sd_notify::NotifyState;

/// Counts the turns of the loop that forwards packets. The loop turns at least once a second.
#[derive(Debug, Clone, Default)]
pub struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    /// The loop has made a turn.
    pub fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn turns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Notifies that the switch is ready. Without systemd this has no effect.
pub fn ready() {
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

/// Notifies that the switch ends.
pub fn stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}

/// Notifies periodically that the switch is alive, as long as the loop turns. Without a watchdog it
/// returns at once.
pub async fn watch(heartbeat: Heartbeat) {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut pulse = Pulse::default();
    let mut ticks = tokio::time::interval(period(limit));
    loop {
        ticks.tick().await;
        if pulse.is_alive(heartbeat.turns()) {
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        }
    }
}

/// The period of these notifications: a third of the time after which systemd restarts the switch.
fn period(limit: Duration) -> Duration {
    (limit / 3).max(Duration::from_millis(1))
}

/// Tells whether the loop has turned since the last check.
#[derive(Debug, Default)]
struct Pulse {
    turns: u64,
}

impl Pulse {
    fn is_alive(&mut self, turns: u64) -> bool {
        std::mem::replace(&mut self.turns, turns) != turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_stands_still_is_not_alive() {
        let (heartbeat, mut pulse) = (Heartbeat::default(), Pulse::default());
        heartbeat.beat();
        assert!(pulse.is_alive(heartbeat.turns()));
        assert!(!pulse.is_alive(heartbeat.turns()));
        heartbeat.beat();
        heartbeat.beat();
        assert!(pulse.is_alive(heartbeat.turns()));
    }

    #[test]
    fn the_watchdog_hears_thrice_in_its_time() {
        assert_eq!(period(Duration::from_secs(6)), Duration::from_secs(2));
        assert_eq!(period(Duration::ZERO), Duration::from_millis(1));
    }
}
