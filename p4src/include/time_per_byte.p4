// Computes the time per byte as span / bytes. P4 has no division by a run-time value, so this
// multiplies by a reciprocal.
//
// The reciprocal of the bytes comes from a table of 32 and one step of Newton's method. The
// table's error is at most 1/65, so the result's is at most 1/65^2 = 0.024 %, always to the fast side.
#ifndef TIME_PER_BYTE_P4
#define TIME_PER_BYTE_P4

// Bits of a reciprocal: 2^59 / m, for m from 2^31 to 2^32.
#define RECIPROCAL_BITS 59

// `span_ns` has 35 bits, `bytes` is not 0.
control TimePerByte(in bit<64> span_ns, in bit<32> bytes, out bit<64> time_per_byte_q24) {
    bit<5> interval;
    bit<64> reciprocal;

    action first_reciprocal(bit<64> value) {
        reciprocal = value;
    }

    // 2^59 / the middle of the interval that begins at (32 + interval) * 2^26.
    table reciprocals {
        key = {
            interval: exact;
        }
        actions = { first_reciprocal; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            0: first_reciprocal(264305680);
            1: first_reciprocal(256415958);
            2: first_reciprocal(248983611);
            3: first_reciprocal(241969989);
            4: first_reciprocal(235340674);
            5: first_reciprocal(229064922);
            6: first_reciprocal(223115184);
            7: first_reciprocal(217466699);
            8: first_reciprocal(212097150);
            9: first_reciprocal(206986376);
            10: first_reciprocal(202116108);
            11: first_reciprocal(197469761);
            12: first_reciprocal(193032238);
            13: first_reciprocal(188789771);
            14: first_reciprocal(184729776);
            15: first_reciprocal(180840728);
            16: first_reciprocal(177112053);
            17: first_reciprocal(173534032);
            18: first_reciprocal(170097715);
            19: first_reciprocal(166794846);
            20: first_reciprocal(163617802);
            21: first_reciprocal(160559525);
            22: first_reciprocal(157613479);
            23: first_reciprocal(154773596);
            24: first_reciprocal(152034241);
            25: first_reciprocal(149390167);
            26: first_reciprocal(146836489);
            27: first_reciprocal(144368649);
            28: first_reciprocal(141982390);
            29: first_reciprocal(139673733);
            30: first_reciprocal(137438953);
            31: first_reciprocal(135274561);
        }
    }

    apply {
        // Shift the leading one to the top.
        bit<32> mantissa = bytes;
        bit<8> shift = 0;
        if (mantissa[31:16] == 0) { mantissa = mantissa << 16; shift = shift + 16; }
        if (mantissa[31:24] == 0) { mantissa = mantissa << 8; shift = shift + 8; }
        if (mantissa[31:28] == 0) { mantissa = mantissa << 4; shift = shift + 4; }
        if (mantissa[31:30] == 0) { mantissa = mantissa << 2; shift = shift + 2; }
        if (mantissa[31:31] == 0) { mantissa = mantissa << 1; shift = shift + 1; }
        interval = mantissa[30:26];
        reciprocal = 0;
        reciprocals.apply();
        // r' = r * (2 - m * r)
        bit<64> rest = (64w1 << (RECIPROCAL_BITS + 1)) - (bit<64>) mantissa * reciprocal;
        reciprocal = (reciprocal * (rest >> 27)) >> (RECIPROCAL_BITS - 27);
        // The time has 35 bits, the reciprocal 28.
        time_per_byte_q24 = (span_ns * reciprocal) >> (RECIPROCAL_BITS - FRACTION_BITS - shift);
    }
}

#endif
