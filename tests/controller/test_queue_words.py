"""The words of egress queues: what the switch takes is taken, and what it refuses is named."""

from __future__ import annotations

import pytest

from pacer_controller.queue_words import WordsError, check_aqm, check_scheduler

LINE_BPS = 100_000_000


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "codel",
        "codel:5ms",
        "codel:1ms:20ms:ecn",
        "codel:100ms",
        "fq_codel:5ms:100ms",
        "pie:0.5ms:ecn",
        "dualpi2",
        "dualpi2:1ms",
        "dualpi2:20ms",
        "red:30KB:90KB:0.1",
        "red:0:1000:1:ecn",
        "wred:30KB:90KB:0.1/20KB:60KB:0.2/10KB:30KB:0.5",
    ],
)
def test_active_queue_management_has_its_parameters(text: str) -> None:
    check_aqm(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no active queue management"),
        ("cake", "'cake' is no active queue management"),
        ("codel:soon", "'soon' is not a time such as 5ms"),
        ("codel:0ms", "'0ms' is not a time of 1 ns to 10 s"),
        ("codel:11s", "'11s' is not a time of 1 ns to 10 s"),
        ("codel:1ms:2ms:3ms", "at most TARGET and INTERVAL expected"),
        ("codel:101ms", "'codel:101ms': the target is above the interval of 100000000 ns"),
        ("fq_codel:2ms:1ms", "the target is above the interval of 1000000 ns"),
        ("pie:15", "'15' is not a time such as 5ms"),
        ("pie:0.1ns", "'0.1ns' is not a time such as 5ms"),
        ("dualpi2:0.999ms", "'0.999ms' is not a time of 1 ms to 10 s"),
        ("dualpi2:1ms:2ms", "at most TARGET expected"),
        ("red", "'' is not MIN:MAX:P, such as 30KB:90KB:0.1"),
        ("red:2:2:0.1", "'2:2:0.1': MIN is not below MAX"),
        ("red:1:4GB:0.1", "MAX is above 4294967295 bytes"),
        ("red:1:2:3", "'3' is not a probability from 0.000001 to 1"),
        ("red:1:2:0", "'0' is not a probability from 0.000001 to 1"),
        ("red:1:2:1_0", "'1_0' is not a probability"),
        ("red:1:2:0.1/1:2:0.1/1:2:0.1", "red has one profile, wred one or three"),
        ("wred:1:2:0.1/1:2:0.1", "red has one profile, wred one or three"),
    ],
)
def test_other_active_queue_management_is_named(text: str, message: str) -> None:
    with pytest.raises(WordsError, match=message.replace("(", r"\(")):
        check_aqm(text)


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ("strict", 64),
        ("drr:4:2:1", 3),
        ("wfq:65536", 1),
        ("wfq{q0}", 1),
        ("strict{q3+wfq{q2:4+drr{q1:2+q4}:3:min=1mbit+q0}:rate=40mbit:burst=3KB}", 5),
        ("drr{q0}:rate=100mbit:min=8kbit", 1),
        ("strict{q1+wfq{paced:4+q0}}", 2),
        ("drr{paced+q0:2}", 1),
    ],
)
def test_a_scheduler_orders_all_queues(text: str, queues: int) -> None:
    check_scheduler(text, queues, LINE_BPS, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fair", "'fair' is no scheduler"),
        ("strict:1", "'strict:1' is no scheduler"),
        ("drr", "drr needs weights, as in drr:4:2:1"),
        ("wfq:1:", "weight '' is no number"),
        ("wfq:1:0", "weight 0 is not between 1 and 65536"),
        ("wfq:1", "1 weights for 2 queues, one for each expected"),
        ("fair{q0}", "'fair' is not strict, drr, wfq or a queue such as q0"),
        ("wfq{q0+x1}", "'x1' is not strict, drr, wfq or a queue such as q0"),
        ("wfq{q0+}", "'' is not strict, drr, wfq or a queue such as q0"),
        ("wfq{q256}", "'q256' is not strict, drr, wfq or a queue such as q0"),
        ("wfq{q00+q1}", "'q00': write q0"),
        ("wfq{q0+q2}", "q2: the port has queues 0 to 1"),
        ("wfq{q0+q0}", "q0 is in the tree twice; each queue of the port is there once"),
        ("wfq{q0}", "q1 is not in the tree; each queue of the port is there once"),
        ("wfq{paced+q0+q1+paced}", "paced is in the tree twice"),
        ("wfq{paced:0+q0+q1}", "weight 0 is not between 1 and 65536"),
        ("wfq{paced:rate=1mbit}", "'rate=1mbit' of paced is a setting of the classes"),
        ("wfq{q0+drr}", "drr needs children, as in drr{q1"),
        ("wfq{q0", "wfq has no '}'"),
        ("wfq{q0{q1}}", "is expected in place of '{q1}}'"),
        ("wfq{q0}}", "'}' follows the end of the tree"),
        ("wfq{q0}:3", "'3': the root has a rate=, no weight"),
        ("wfq{q0:}", "nothing follows the ':' before '}'"),
        ("wfq{q0:many}", "weight 'many' is no number"),
        ("wfq{q0:1:2}", "'2': q0 has two weights"),
        ("wfq{q0:rate=1mbit}", "'rate=1mbit' of q0 is a setting of the queue, not of the tree"),
        ("strict{q0:4}", "'4': a child of strict has no weight"),
        ("wfq{drr{q0}:burst=1KB}", "'burst=1KB' needs a rate before it"),
        ("wfq{drr{q0}:rate=fast}", "'fast' is not a rate such as 500mbit"),
        ("wfq{drr{q0}:rate=2mbit:rate=1mbit}", "'rate=1mbit': rate is given twice"),
        ("wfq{drr{q0}:rate=1kbit}", "rate 1kbit is not between 8kbit and 100Gbit"),
        ("wfq{drr{q0}:rate=1gbit}", "rate 1gbit is above the line rate, 100Mbit"),
        ("wfq{drr{q0}:ceil=1mbit}", "'ceil=1mbit' is not rate=, burst= or min="),
        ("wfq{drr{q0}:rate=1mbit:min=2mbit}", "minimum rate 2Mbit is above its rate=1Mbit"),
        ("wfq{drr{q0+q1}:min=2mbit}", "min=2Mbit is below its children's 3Mbit"),
        ("drr{" * 9 + "q0" + "}" * 9, "more than 8 levels of nodes"),
        ("wfq{" + "+".join(["drr{q0}"] * 64) + "}", "more than 64 nodes"),
        ("wfq{" + "+".join(["q0"] * 65) + "}", "wfq has more than 64 children"),
    ],
)
def test_other_schedulers_are_named(text: str, message: str) -> None:
    with pytest.raises(WordsError) as error:
        check_scheduler(text, 2, LINE_BPS, {1: 3_000_000})
    assert message in str(error.value)
