//! Direct resources of default entries, meters' counts per colour, single-rate meters, whole arrays in
//! atomic batches, and values of more types. Each is written, read back, and applied to packets.

use p4::entity::Entity;
use p4::stream_message_response::Update as FromSwitch;
use p4::update::Type;
use p4::write_request::Atomicity;
use p4runtime_server::ServerLimits;
use p4runtime_server::proto::p4::config::v1 as p4info;
use p4runtime_server::proto::p4::v1 as p4;
use tonic::Code;

use crate::support::{Controller, Push, Server, config, exact};

const GREEN: u8 = 0;
const YELLOW: u8 = 1;
const RED: u8 = 2;

/// Bytes of the tests' frames.
const LENGTH: usize = 60;

/// The program, with the meters' types in P4Info as their annotations have them (which newer versions
/// of p4c write there themselves).
fn program() -> p4::ForwardingPipelineConfig {
    use p4info::meter_spec::Type as MeterType;
    let mut config = config("resources");
    let info = config.p4info.as_mut().expect("P4Info");
    for meter in &mut info.meters {
        let annotations = meter.preamble.as_ref().map(|p| p.annotations.clone());
        let has = |name: &str| annotations.iter().flatten().any(|given| given == name);
        let spec = meter.spec.as_mut().expect("a spec");
        if has("@single_rate_three_color") {
            spec.set_type(MeterType::SingleRateThreeColor);
        } else if has("@single_rate_two_color") {
            spec.set_type(MeterType::SingleRateTwoColor);
        }
    }
    config
}

async fn started(limits: ServerLimits) -> (Server, Controller) {
    let server = Server::with_limits(limits).await;
    let mut controller = Controller::open(&server).await;
    controller.arbitrate(1).await.expect("stream open");
    controller
        .push(program(), Push::VerifyAndCommit)
        .await
        .expect("accepted");
    (server, controller)
}

/// A frame to station 0 from the station `src`.
fn frame(src: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, src, 0x90, 0];
    frame.resize(LENGTH, 0xaa);
    frame
}

/// The colours that a frame met, as the program writes them into its address: of `single`, of `two`,
/// of `double` and of the table.
async fn colours(server: &mut Server) -> [u8; 4] {
    server.arrive(1, &frame(1));
    let (_, frame) = server.leave().await;
    [0, 2, 4, 6].map(|shift| (frame[5] >> shift) & 3)
}

fn counted(packets: i64) -> p4::CounterData {
    p4::CounterData {
        packet_count: packets,
        byte_count: packets * LENGTH as i64,
    }
}

/// Counts of green, yellow and red packets.
fn by_colour(counts: [i64; 3]) -> p4::MeterCounterData {
    let [green, yellow, red] = counts.map(|packets| Some(counted(packets)));
    p4::MeterCounterData { green, yellow, red }
}

/// A default entry's name.
fn default_of(controller: &Controller, table: &str) -> p4::TableEntry {
    p4::TableEntry {
        table_id: controller.table(table),
        is_default_action: true,
        ..Default::default()
    }
}

/// The same, asking for all its direct resources.
fn with_direct(entry: p4::TableEntry) -> p4::TableEntry {
    p4::TableEntry {
        counter_data: Some(p4::CounterData::default()),
        meter_config: Some(p4::MeterConfig::default()),
        meter_counter_data: Some(p4::MeterCounterData::default()),
        ..entry
    }
}

async fn direct_counter(controller: &mut Controller, entry: p4::TableEntry) -> p4::CounterData {
    let filter = p4::DirectCounterEntry {
        table_entry: Some(entry.clone()),
        data: None,
    };
    let read = controller.read(Entity::DirectCounterEntry(filter)).await;
    let [Entity::DirectCounterEntry(counter)] = &read[..] else {
        panic!("one direct counter expected: {read:?}");
    };
    assert_eq!(counter.table_entry.as_ref(), Some(&entry));
    counter.data.expect("counted")
}

#[tokio::test]
async fn default_entries_count_what_they_get() {
    let (mut server, mut controller) = started(ServerLimits::default()).await;
    let tables = ["stations", "all", "fixed"];
    let entries = tables.map(|name| default_of(&controller, &format!("ResourcesIngress.{name}")));
    // A station of its own is no miss.
    controller
        .insert(p4::TableEntry {
            table_id: entries[0].table_id,
            r#match: vec![exact(1, &[2, 0, 0, 0, 0, 7])],
            action: controller.call("ResourcesIngress.metered", &[&[1]]),
            ..Default::default()
        })
        .await
        .expect("inserted");
    for src in [1, 2, 7] {
        server.arrive(1, &frame(src));
        let (port, _) = server.leave().await;
        assert_eq!(port, if src == 7 { 1 } else { 2 });
    }
    for (entry, packets) in entries.iter().zip([2, 3, 3]) {
        assert_eq!(
            direct_counter(&mut controller, entry.clone()).await,
            counted(packets)
        );
        // In the entry, too, if it is asked for; without being asked, not.
        let whole = controller.entries(with_direct(entry.clone())).await;
        assert_eq!(whole[0].counter_data, Some(counted(packets)));
        assert_eq!(
            controller.entries(entry.clone()).await[0].counter_data,
            None
        );
    }
    // All default entries at once.
    let filter = p4::DirectCounterEntry {
        table_entry: Some(p4::TableEntry {
            is_default_action: true,
            ..Default::default()
        }),
        data: None,
    };
    let all = controller.read(Entity::DirectCounterEntry(filter)).await;
    assert_eq!(all.len(), 3);
    // Those of a table are those of its entries.
    let filter = p4::DirectCounterEntry {
        table_entry: Some(p4::TableEntry {
            table_id: entries[0].table_id,
            ..Default::default()
        }),
        data: None,
    };
    assert_eq!(
        controller
            .read(Entity::DirectCounterEntry(filter))
            .await
            .len(),
        1
    );

    // Written by themselves, also where the default action is constant.
    for entry in &entries {
        let write = p4::DirectCounterEntry {
            table_entry: Some(entry.clone()),
            data: Some(counted(100)),
        };
        controller
            .modify(Entity::DirectCounterEntry(write))
            .await
            .expect("written");
    }
    server.arrive(1, &frame(1));
    server.leave().await;
    for entry in &entries {
        let now = direct_counter(&mut controller, entry.clone()).await;
        assert_eq!(now, counted(101));
    }
    // With the action: kept if not given, set if given; back at the start with a reset.
    let all = &entries[1];
    let send = p4::TableEntry {
        action: controller.call("ResourcesIngress.send", &[&[1]]),
        ..all.clone()
    };
    let set = p4::TableEntry {
        counter_data: Some(counted(5)),
        ..send.clone()
    };
    for (write, wanted) in [(send, 101), (set, 5), (all.clone(), 0)] {
        controller
            .modify(Entity::TableEntry(write))
            .await
            .expect("modified");
        let now = direct_counter(&mut controller, all.clone()).await;
        assert_eq!(now, counted(wanted));
    }
    // Writes with a fault.
    let refused = controller
        .modify(Entity::TableEntry(p4::TableEntry {
            counter_data: Some(counted(1)),
            ..entries[2].clone()
        }))
        .await;
    assert_eq!(refused.expect_err("constant").0, Code::PermissionDenied);
    for (entity, text) in [
        (
            Entity::DirectCounterEntry(p4::DirectCounterEntry {
                table_entry: Some(p4::TableEntry {
                    priority: 1,
                    ..all.clone()
                }),
                data: None,
            }),
            "is_default_action: true given with a match or a priority",
        ),
        (
            Entity::DirectMeterEntry(p4::DirectMeterEntry {
                table_entry: Some(all.clone()),
                ..Default::default()
            }),
            "no direct meter",
        ),
        (
            Entity::TableEntry(p4::TableEntry {
                meter_counter_data: Some(p4::MeterCounterData::default()),
                ..all.clone()
            }),
            "meter_counter_data: given, but the table has no direct meter",
        ),
    ] {
        let (code, message) = controller.modify(entity).await.expect_err(text);
        assert_eq!(code, Code::InvalidArgument, "{message}");
        assert!(message.contains(text), "{message}");
    }
    server.stop().await;
}

/// A meter that lets `cburst` bytes pass as green, and `pburst` in all.
fn bursts(cburst: i64, pburst: i64) -> p4::MeterConfig {
    p4::MeterConfig {
        cir: 1,
        cburst,
        pir: 1,
        pburst,
        eburst: 0,
    }
}

#[tokio::test]
async fn the_default_entrys_meter_colours_misses() {
    let (mut server, mut controller) = started(ServerLimits::default()).await;
    let entry = default_of(&controller, "ResourcesIngress.stations");
    let length = LENGTH as i64;
    let state = |config, counts| p4::DirectMeterEntry {
        table_entry: Some(entry.clone()),
        config,
        counter_data: Some(counts),
    };
    let filter = Entity::DirectMeterEntry(state(None, p4::MeterCounterData::default()));
    // Not configured: green.
    assert_eq!(colours(&mut server).await[3], GREEN);
    let wanted = state(None, by_colour([1, 0, 0]));
    assert_eq!(
        controller.read(filter.clone()).await,
        [Entity::DirectMeterEntry(wanted)]
    );
    let config = bursts(length, 2 * length);
    let write = p4::TableEntry {
        action: controller.call("NoAction", &[]),
        meter_config: Some(config),
        ..entry.clone()
    };
    controller
        .modify(Entity::TableEntry(write.clone()))
        .await
        .expect("modified");
    for wanted in [GREEN, YELLOW, RED, RED] {
        assert_eq!(colours(&mut server).await[3], wanted);
    }
    let counts = by_colour([2, 1, 2]);
    let wanted = state(Some(config), counts);
    assert_eq!(
        controller.read(filter.clone()).await,
        [Entity::DirectMeterEntry(wanted.clone())]
    );
    // Counts come if they are asked for.
    let unasked = p4::DirectMeterEntry {
        counter_data: None,
        ..wanted.clone()
    };
    let request = p4::DirectMeterEntry {
        table_entry: Some(entry.clone()),
        ..Default::default()
    };
    assert_eq!(
        controller.read(Entity::DirectMeterEntry(request)).await,
        [Entity::DirectMeterEntry(unasked)]
    );
    let whole = controller.entries(with_direct(entry.clone())).await;
    assert_eq!(
        (whole[0].meter_config, whole[0].meter_counter_data),
        (Some(config), Some(counts))
    );

    // A batch that fails leaves it as it was: the bucket empty, the counts, the action.
    let mut request = controller.request(vec![
        (Type::Modify, Entity::TableEntry(entry.clone())),
        (
            Type::Modify,
            Entity::CounterEntry(p4::CounterEntry {
                counter_id: controller.counter("ResourcesIngress.frames"),
                index: Some(p4::Index { index: 1 << 40 }),
                data: Some(counted(1)),
            }),
        ),
    ]);
    request.atomicity = Atomicity::RollbackOnError.into();
    controller
        .client
        .write(request)
        .await
        .expect_err("out of range");
    let mut request = controller.request(vec![
        (Type::Modify, Entity::TableEntry(entry.clone())),
        (
            Type::Delete,
            Entity::TableEntry(p4::TableEntry {
                table_id: entry.table_id,
                r#match: vec![exact(1, &[1])],
                ..Default::default()
            }),
        ),
    ]);
    request.atomicity = Atomicity::DataplaneAtomic.into();
    controller
        .client
        .write(request)
        .await
        .expect_err("not there");
    assert_eq!(
        controller.read(filter.clone()).await,
        [Entity::DirectMeterEntry(wanted)]
    );
    assert_eq!(colours(&mut server).await[3], RED);

    // Configured alone: full buckets, counts stay, or are cleared if given as 0.
    let mut write = state(Some(config), by_colour([0, 0, 0]));
    write.counter_data = None;
    for (counter_data, green) in [(None, 3), (Some(p4::MeterCounterData::default()), 1)] {
        write.counter_data = counter_data;
        controller
            .modify(Entity::DirectMeterEntry(write.clone()))
            .await
            .expect("modified");
        assert_eq!(colours(&mut server).await[3], GREEN);
        let read = controller.read(filter.clone()).await;
        let [Entity::DirectMeterEntry(now)] = &read[..] else {
            panic!("a meter");
        };
        let now = now.counter_data.expect("asked for");
        assert_eq!(now.green, Some(counted(green)));
        assert_eq!(now.red, Some(counted(if green == 1 { 0 } else { 3 })));
    }
    write.counter_data = Some(by_colour([1, 0, 0]));
    let refused = controller.modify(Entity::DirectMeterEntry(write)).await;
    assert_eq!(refused.expect_err("not 0").0, Code::InvalidArgument);

    // "When resetting the default entry, ... the configurations for its direct resources will be
    // reset to their defaults."
    controller
        .modify(Entity::TableEntry(entry.clone()))
        .await
        .expect("reset");
    let wanted = state(None, by_colour([0, 0, 0]));
    assert_eq!(
        controller.read(filter).await,
        [Entity::DirectMeterEntry(wanted)]
    );
    for _ in 0..3 {
        assert_eq!(colours(&mut server).await[3], GREEN);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_entrys_meter_counts_per_colour() {
    let (mut server, mut controller) = started(ServerLimits::default()).await;
    let length = LENGTH as i64;
    let entry = p4::TableEntry {
        table_id: controller.table("ResourcesIngress.stations"),
        r#match: vec![exact(1, &[2, 0, 0, 0, 0, 1])],
        action: controller.call("ResourcesIngress.metered", &[&[2]]),
        meter_config: Some(bursts(2 * length, 3 * length)),
        // "Sub-field, if any, can only have zero (0) as its value."
        meter_counter_data: Some(by_colour([0, 0, 0])),
        ..Default::default()
    };
    let refused = controller
        .insert(p4::TableEntry {
            meter_counter_data: Some(by_colour([0, 1, 0])),
            ..entry.clone()
        })
        .await;
    assert_eq!(refused.expect_err("not 0").0, Code::InvalidArgument);
    controller.insert(entry.clone()).await.expect("inserted");
    for wanted in [GREEN, GREEN, YELLOW, RED] {
        assert_eq!(colours(&mut server).await[3], wanted);
    }
    let filter = with_direct(p4::TableEntry {
        table_id: entry.table_id,
        ..Default::default()
    });
    for (given, wanted) in [
        (None, [2, 1, 1]),
        (Some(p4::MeterCounterData::default()), [0; 3]),
    ] {
        let read = controller.entries(filter.clone()).await;
        assert_eq!(read[0].meter_counter_data, Some(by_colour([2, 1, 1])));
        controller
            .modify(Entity::TableEntry(p4::TableEntry {
                meter_counter_data: given,
                ..entry.clone()
            }))
            .await
            .expect("modified");
        let read = controller.entries(filter.clone()).await;
        assert_eq!(read[0].meter_counter_data, Some(by_colour(wanted)));
    }
    server.stop().await;
}

#[tokio::test]
async fn single_rate_meters_colour_as_rfc_2697_says() {
    let (mut server, mut controller) = started(ServerLimits::default()).await;
    // Packets per second, and packets.
    let three = p4::MeterConfig {
        cir: 10,
        cburst: 2,
        pir: 10,
        pburst: 2,
        eburst: 1,
    };
    let two = p4::MeterConfig { eburst: 0, ..three };
    let cell = |controller: &Controller, meter: &str, config| p4::MeterEntry {
        meter_id: controller.meter(&format!("ResourcesIngress.{meter}")),
        index: Some(p4::Index { index: 0 }),
        config: Some(config),
        counter_data: None,
    };
    for (meter, config, wanted) in [
        ("single", three, None),
        ("single", two, None),
        ("single", p4::MeterConfig { pir: 11, ..three }, Some("pir")),
        (
            "single",
            p4::MeterConfig { pburst: 3, ..three },
            Some("pburst"),
        ),
        (
            "single",
            p4::MeterConfig {
                eburst: -1,
                ..three
            },
            Some("eburst"),
        ),
        ("two", two, None),
        ("two", three, Some("eburst")),
        ("two", p4::MeterConfig { pir: 11, ..two }, Some("pir")),
        ("double", two, None),
        ("double", three, Some("eburst")),
    ] {
        let given = controller
            .modify(Entity::MeterEntry(cell(&controller, meter, config)))
            .await;
        match (given, wanted) {
            (Ok(()), None) => {
                let filter = p4::MeterEntry {
                    config: None,
                    ..cell(&controller, meter, config)
                };
                let read = controller.read(Entity::MeterEntry(filter)).await;
                let written = cell(&controller, meter, config);
                assert_eq!(read, [Entity::MeterEntry(written)]);
            }
            (Err((code, message)), Some(field)) => {
                assert_eq!(code, Code::InvalidArgument, "{meter}: {message}");
                assert!(message.contains(field), "{meter}: {message}");
            }
            (given, _) => panic!("{meter} {config:?}: {given:?}"),
        }
    }
    // "Any acceptable MeterConfig for a Single Rate Two Color Marker typed meter ... will mark packets
    // identically in all three cases."
    for (now_ns, wanted) in [(0, GREEN), (0, GREEN), (0, RED), (99_999_999, RED)] {
        server.time(now_ns);
        assert_eq!(
            colours(&mut server).await,
            [wanted, wanted, wanted, GREEN],
            "{now_ns}"
        );
    }
    server.time(100_000_000);
    assert_eq!(colours(&mut server).await[..3], [GREEN; 3]);

    let write = cell(&controller, "single", three);
    let clear = p4::MeterEntry {
        counter_data: Some(p4::MeterCounterData::default()),
        ..write
    };
    controller
        .modify(Entity::MeterEntry(clear))
        .await
        .expect("modified");
    let mut seen = Vec::new();
    // The buckets are full at first. 100 ms make a token, and the committed bucket's overflow goes to
    // the excess bucket: after 300 ms two tokens are committed and one is excess.
    for now_ms in [100, 100, 100, 100, 200, 200, 500, 500, 500, 500] {
        server.time(now_ms * 1_000_000);
        seen.push(colours(&mut server).await[0]);
    }
    assert_eq!(
        seen,
        [
            GREEN, GREEN, YELLOW, RED, GREEN, RED, GREEN, GREEN, YELLOW, RED
        ]
    );
    let read = controller
        .read(Entity::MeterEntry(p4::MeterEntry {
            config: None,
            ..clear
        }))
        .await;
    let wanted = p4::MeterEntry {
        counter_data: Some(by_colour([5, 2, 3])),
        ..write
    };
    assert_eq!(read, [Entity::MeterEntry(wanted)]);
    server.stop().await;
}

/// The sums of the arrays' values, and the number of configured meters.
async fn arrays(controller: &mut Controller) -> (u64, i64, usize) {
    let (mut marks, mut frames, mut meters) = (0, 0, 0);
    let read = [
        Entity::RegisterEntry(p4::RegisterEntry {
            register_id: controller.register("ResourcesIngress.marks"),
            ..Default::default()
        }),
        Entity::CounterEntry(p4::CounterEntry {
            counter_id: controller.counter("ResourcesIngress.frames"),
            ..Default::default()
        }),
        Entity::MeterEntry(p4::MeterEntry {
            meter_id: controller.meter("ResourcesIngress.rates"),
            ..Default::default()
        }),
    ];
    let (cells, _, status) = controller.read_all(read.to_vec()).await;
    status.expect("read");
    for cell in cells {
        match cell {
            Entity::RegisterEntry(cell) => {
                let Some(p4::p4_data::Data::Bitstring(value)) = cell.data.and_then(|d| d.data)
                else {
                    panic!("a bitstring");
                };
                marks += value.iter().fold(0, |sum, b| (sum << 8) | u64::from(*b));
            }
            Entity::CounterEntry(cell) => frames += cell.data.expect("counted").packet_count,
            Entity::MeterEntry(cell) => meters += usize::from(cell.config.is_some()),
            other => panic!("{other:?}"),
        }
    }
    (marks, frames, meters)
}

/// Writes of all cells of three arrays of 100,000.
fn fills(controller: &Controller, value: u8) -> Vec<(Type, Entity)> {
    let register = p4::RegisterEntry {
        register_id: controller.register("ResourcesIngress.marks"),
        index: None,
        data: Some(p4::P4Data {
            data: Some(p4::p4_data::Data::Bitstring(vec![value])),
        }),
    };
    let counter = p4::CounterEntry {
        counter_id: controller.counter("ResourcesIngress.frames"),
        index: None,
        data: Some(counted(value.into())),
    };
    let meter = p4::MeterEntry {
        meter_id: controller.meter("ResourcesIngress.rates"),
        index: None,
        config: Some(bursts(i64::from(value) - 1, i64::from(value) - 1)),
        counter_data: Some(p4::MeterCounterData::default()),
    };
    vec![
        (Type::Modify, Entity::RegisterEntry(register)),
        (Type::Modify, Entity::CounterEntry(counter)),
        (Type::Modify, Entity::MeterEntry(meter)),
    ]
}

#[tokio::test]
async fn an_atomic_batch_writes_whole_arrays_or_nothing() {
    const CELLS: usize = 100_000;
    let (mut server, mut controller) = started(ServerLimits {
        atomic_work: 200_000,
        ..ServerLimits::default()
    })
    .await;
    // One of each is used.
    server.arrive(1, &frame(1));
    server.leave().await;
    let used = (7, 1, 0);
    assert_eq!(arrays(&mut controller).await, used);
    // The last update fails in the switch.
    let mut updates = fills(&controller, 1);
    let missing = p4::TableEntry {
        table_id: controller.table("ResourcesIngress.stations"),
        r#match: vec![exact(1, &[1])],
        ..Default::default()
    };
    updates.push((Type::Delete, Entity::TableEntry(missing)));
    for atomicity in [Atomicity::RollbackOnError, Atomicity::DataplaneAtomic] {
        let mut request = controller.request(updates.clone());
        request.atomicity = atomicity.into();
        controller
            .client
            .write(request)
            .await
            .expect_err("not there");
        assert_eq!(arrays(&mut controller).await, used);
    }
    // The meter has still counted one as green.
    let filter = p4::MeterEntry {
        meter_id: controller.meter("ResourcesIngress.rates"),
        index: Some(p4::Index { index: 1 }),
        config: None,
        counter_data: Some(p4::MeterCounterData::default()),
    };
    let read = controller.read(Entity::MeterEntry(filter)).await;
    let Some(Entity::MeterEntry(meter)) = read.first() else {
        panic!("a meter");
    };
    assert_eq!(meter.counter_data, Some(by_colour([1, 0, 0])));
    for value in [1, 3] {
        let mut request = controller.request(fills(&controller, value));
        request.atomicity = Atomicity::DataplaneAtomic.into();
        controller.client.write(request).await.expect("applied");
        let all = CELLS * usize::from(value);
        let wanted = (all as u64, all as i64, CELLS);
        assert_eq!(arrays(&mut controller).await, wanted);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_atomic_batch_that_takes_too_much_memory_is_refused_whole() {
    let limits = ServerLimits {
        rollback_bytes: 1_000_000,
        ..ServerLimits::default()
    };
    let (server, mut controller) = started(limits).await;
    // 800,000 bytes of a register, then 1,600,000 of a counter.
    let updates = fills(&controller, 1);
    for (count, fits) in [(1, true), (2, false)] {
        let mut request = controller.request(updates[..count].to_vec());
        request.atomicity = Atomicity::RollbackOnError.into();
        match controller.client.write(request).await {
            Ok(_) => assert!(fits),
            Err(status) => {
                assert!(!fits);
                assert_eq!(status.code(), Code::Unimplemented);
                assert!(status.message().contains("1000000 bytes"), "{status:?}");
            }
        }
    }
    assert_eq!(arrays(&mut controller).await, (100_000, 0, 0));
    // Otherwise it is written in pieces.
    let request = controller.request(updates);
    controller.client.write(request).await.expect("applied");
    assert_eq!(arrays(&mut controller).await, (100_000, 100_000, 100_000));
    server.stop().await;
}

/// A frame with a tag: 3 bits of priority, a signed offset of 13.
fn tagged(priority: u8, offset: i16) -> Vec<u8> {
    let mut frame = frame(1);
    let [high, low] = offset.to_be_bytes();
    let tag = [0x81, 0, (priority << 5) | (high & 0x1f), low, 0x90, 0];
    frame.splice(12..14, tag);
    frame
}

#[tokio::test]
async fn digests_tell_headers_and_whether_a_packet_has_them() {
    use p4::p4_data::Data;
    let (mut server, mut controller) = started(ServerLimits::default()).await;
    let entry = p4::DigestEntry {
        digest_id: controller.digest("seen_t"),
        config: Some(p4::digest_entry::Config {
            max_timeout_ns: 0,
            max_list_size: 1,
            ack_timeout_ns: 1_000,
        }),
    };
    controller
        .write(Type::Insert, Entity::DigestEntry(entry))
        .await
        .expect("enabled");
    let header = |fields: &[&[u8]]| {
        Data::Header(p4::P4Header {
            is_valid: !fields.is_empty(),
            bitstrings: fields.iter().map(|field| field.to_vec()).collect(),
        })
    };
    let station: &[u8] = &[2, 0, 0, 0, 0, 1];
    let to: &[u8] = &[2, 0, 0, 0, 0, 0];
    // -3 in 13 bits. The second packet has no tag, and its message nothing of the one before. The third
    // is like the first, and is not sent again.
    for (sent, ether_type, tag) in [
        (
            tagged(5, -3),
            &[0x81, 0][..],
            header(&[&[5], &[0xfd], &[0x90, 0]]),
        ),
        (frame(1), &[0x90, 0][..], header(&[])),
        (
            tagged(5, 200),
            &[0x81, 0][..],
            header(&[&[5], &[0, 200], &[0x90, 0]]),
        ),
    ] {
        let last = matches!(&tag, Data::Header(header) if header.is_valid);
        for _ in 0..2 {
            server.arrive(1, &sent);
            server.leave().await;
        }
        let FromSwitch::Digest(list) = controller.receive().await.expect("open") else {
            panic!("a digest list");
        };
        let members = [
            Data::Bitstring(vec![1]),
            header(&[to, station, ether_type]),
            tag,
            Data::Bool(last),
        ];
        let wanted = p4::P4Data {
            data: Some(Data::Struct(p4::P4StructLike {
                members: members.map(|data| p4::P4Data { data: Some(data) }).to_vec(),
            })),
        };
        assert_eq!(list.data, [wanted]);
    }
    server.stop().await;
}

#[tokio::test]
async fn registers_hold_signed_numbers_and_enums() {
    use p4::p4_data::Data;
    let (mut server, mut controller) = started(ServerLimits::default()).await;
    let cell = |controller: &Controller, name: &str, data: Option<Data>| p4::RegisterEntry {
        register_id: controller.register(&format!("ResourcesIngress.{name}")),
        index: Some(p4::Index { index: 1 }),
        data: data.map(|data| p4::P4Data { data: Some(data) }),
    };
    let bits = |value: &[u8]| Data::Bitstring(value.to_vec());
    let name = |name: &str| Data::Enum(name.to_owned());
    // Written by the program.
    for (offset, wanted) in [
        (-3, &[0xfd][..]),
        (1_000, &[3, 0xe8]),
        (-1_000, &[0xfc, 0x18]),
    ] {
        server.arrive(1, &tagged(0, offset));
        server.leave().await;
        for (register, wanted) in [
            ("offsets", bits(wanted)),
            ("named_offsets", bits(wanted)),
            ("kinds", name("TAGGED")),
        ] {
            let filter = Entity::RegisterEntry(cell(&controller, register, None));
            let wanted = Entity::RegisterEntry(cell(&controller, register, Some(wanted)));
            assert_eq!(controller.read(filter).await, [wanted]);
        }
    }
    // Written by the controller: read back in canonical form.
    for (register, given, wanted) in [
        ("offsets", bits(&[0xff, 0xff]), bits(&[0xff])),
        ("offsets", bits(&[0xf8, 0]), bits(&[0xf8, 0])),
        ("named_offsets", bits(&[0, 0x80]), bits(&[0, 0x80])),
        ("kinds", name("PLAIN"), name("PLAIN")),
    ] {
        let write = cell(&controller, register, Some(given));
        controller
            .modify(Entity::RegisterEntry(write))
            .await
            .expect("written");
        let filter = Entity::RegisterEntry(cell(&controller, register, None));
        let wanted = Entity::RegisterEntry(cell(&controller, register, Some(wanted)));
        assert_eq!(controller.read(filter).await, [wanted]);
    }
    for (register, given, code) in [
        ("offsets", bits(&[8, 0]), Code::OutOfRange),
        ("offsets", bits(&[0xf7, 0xff]), Code::OutOfRange),
        ("offsets", bits(&[]), Code::OutOfRange),
        ("offsets", Data::Bool(true), Code::InvalidArgument),
        ("kinds", name("OTHER"), Code::InvalidArgument),
        ("kinds", bits(&[1]), Code::InvalidArgument),
    ] {
        let write = cell(&controller, register, Some(given));
        let refused = controller.modify(Entity::RegisterEntry(write)).await;
        assert_eq!(refused.expect_err(register).0, code);
    }
    // P4Info of another type than the program's cells have.
    let mut other = program();
    let info = other.p4info.as_mut().expect("P4Info");
    let marks = info.registers.iter().find(|r| r.size == 100_000);
    let spec = marks.expect("marks").type_spec.clone();
    info.registers
        .iter_mut()
        .for_each(|register| register.type_spec = spec.clone());
    let status = controller.push(other, Push::VerifyAndCommit).await;
    let status = status.expect_err("12 bits, not 32");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("ResourcesIngress.offsets"));
    server.stop().await;
}

#[tokio::test]
async fn reconciling_keeps_the_default_entries_resources() {
    let (mut server, mut controller) = started(ServerLimits::default()).await;
    let stations = default_of(&controller, "ResourcesIngress.stations");
    let config = bursts(1_000, 2_000);
    let meter = p4::DirectMeterEntry {
        table_entry: Some(stations.clone()),
        config: Some(config),
        counter_data: None,
    };
    controller
        .modify(Entity::DirectMeterEntry(meter.clone()))
        .await
        .expect("configured");
    server.arrive(1, &frame(1));
    server.leave().await;
    // Another program, of which only a name differs.
    let mut next = program();
    let text = String::from_utf8(next.p4_device_config).expect("JSON");
    next.p4_device_config = text.replace("\"resources.p4\"", "\"next.p4\"").into_bytes();
    controller
        .push(next, Push::ReconcileAndCommit)
        .await
        .expect("reconciled");
    assert_eq!(direct_counter(&mut controller, stations).await, counted(1));
    let filter = p4::DirectMeterEntry {
        config: None,
        ..meter.clone()
    };
    assert_eq!(
        controller.read(Entity::DirectMeterEntry(filter)).await,
        [Entity::DirectMeterEntry(meter)]
    );
    server.stop().await;
}
