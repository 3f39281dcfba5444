// Decides when a packet leaves if a timer releases its class, as the token bucket of a
// kernel whose timer is the system's tick: it wakes HZ times a second and sends what its tokens
// allow back to back. Its burst is rate / HZ.
//
// At each tick the class has tokens for one tick's time at its rate, less
// what the last tick overdrew, and never more, so an idle class keeps one tick's. Packets leave at a
// tick while there are tokens; the last one may overdraw them. No time is lost, so the rate is exact
// over many ticks.
//
// Ticks are multiples of tick_ns, less tick_lead_ns. Classes and flows in slots have ticks a cycle
// apart, each at its own slot of the cycle, so their packets do not leave together.
//
// The class clock C is the time up to which tokens are spent. A packet leaves at the first tick
// behind C, and C is at least the tick before the first one that the packet can leave at:
// S = max(C, T - tick), D = the first multiple of tick above S, C' = S + cost.
#ifndef TICKS_P4
#define TICKS_P4

// `start_ns`, `start_frac`: in C, out S.
control DepartureAtTick(in bit<64> tick_ns, in bit<64> ticks_per_ns_q64,
                        in bit<64> tick_lead_ns, in bit<64> now_ns,
                        inout bit<64> start_ns, inout bit<32> start_frac,
                        out bit<64> departure_ns) {
    apply {
        // A packet that comes at a tick can leave at it.
        bit<64> at_ns = now_ns |-| 1;
        if (start_ns > at_ns) {
            at_ns = start_ns;
        }
        at_ns = at_ns + tick_lead_ns;
        // The multiple at or before at_ns. The reciprocal is less than 1 too small, so the quotient is
        // at most 1 too small.
        bit<128> quotient_q64 = (bit<128>) at_ns * (bit<128>) ticks_per_ns_q64;
        bit<64> tick_at_ns = quotient_q64[127:64] * tick_ns;
        if (at_ns - tick_at_ns >= tick_ns) {
            tick_at_ns = tick_at_ns + tick_ns;
        }
        if (tick_at_ns > start_ns + tick_lead_ns) {
            start_ns = tick_at_ns - tick_lead_ns;
            start_frac = 0;
        }
        departure_ns = tick_at_ns + tick_ns - tick_lead_ns;
    }
}

#endif
