//! The services over real sockets, with clients that the Thrift compiler has made, on a switch whose
//! thread does nothing but jobs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bmv2_thrift::simple_pre_lag::{SimplePreLAGSyncClient, TSimplePreLAGSyncClient};
use bmv2_thrift::simple_switch::{
    MirroringSessionConfig, SimpleSwitchSyncClient, TSimpleSwitchSyncClient,
};
use bmv2_thrift::standard::{
    BmActionEntryType, BmAddEntryOptions, BmCounterValue, BmMatchParam, BmMatchParamExact,
    BmMatchParamLPM, BmMatchParamRange, BmMatchParamTernary, BmMatchParamType as Type,
    BmMeterRateConfig, BmMtEntry, BmResourceType, InvalidSwapOperation, InvalidTableOperation,
    StandardSyncClient, SwapOperationErrorCode, TStandardSyncClient,
    TableOperationErrorCode as Code,
};
use p4runtime_server::proto::p4::v1 as p4;
use p4runtime_server::proto::p4::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_server::{
    Mappings, Refusals, ServerConfig, ServerLimits, bind, controller_queues, executor,
};
use port_settings::QueueSettings;
use switch::{Switch, SwitchConfig};
use thrift::OrderedFloat;
use thrift::protocol::{TBinaryInputProtocol, TBinaryOutputProtocol, TMultiplexedOutputProtocol};
use thrift_server::{ThriftConfig, ThriftLimits, ThriftServer};
use tokio::runtime::Runtime;
use tokio_stream::StreamExt;
use traffic_manager::{Gaps, Limits, PortConfig, RateCounts};

const PROGRAM: &[u8] = include_bytes!("../../p4runtime-server/tests/programs/kinds.json");

/// Has constant entries in a ternary table.
const ENTRIES: &[u8] = include_bytes!("../../v1model/tests/programs/entries.json");

type Input = TBinaryInputProtocol<TcpStream>;
type Output = TMultiplexedOutputProtocol<TBinaryOutputProtocol<TcpStream>>;

/// A switch with ports 1 and 2 behind a Thrift server and a P4Runtime server.
struct Bench {
    server: ThriftServer,
    p4runtime: SocketAddr,
    refusals: Arc<Refusals>,
    /// Runs the P4Runtime server.
    runtime: Runtime,
    /// Jobs given to the switch so far.
    jobs: Arc<AtomicUsize>,
    switch: JoinHandle<()>,
}

impl Bench {
    fn start() -> Self {
        Self::of(PROGRAM)
    }

    fn of(program: &[u8]) -> Self {
        Self::with(program, ThriftLimits::default(), None)
    }

    /// `holders`: those among the clients of Thrift. All clients of P4Runtime are.
    fn with(program: &[u8], limits: ThriftLimits, holders: Option<Vec<u32>>) -> Self {
        let config = SwitchConfig {
            entry_handles: true,
            ..SwitchConfig::default()
        };
        let mut switch = Switch::new(config, Limits::default());
        for port in 1..=2 {
            let config = PortConfig {
                line_rate_bps: None,
                counts: RateCounts::Wire,
                fifo_bytes: 65_536,
                delay_ns: 0,
                gaps: Gaps::Accounted,
            };
            let added = switch.add_port(port, &format!("veth{port}"), config);
            added.expect("a new port");
        }
        let queues = switch.set_queues(2, Some(QueueSettings::strict(8)));
        queues.expect("a port");
        switch.load(program).expect("a program");
        let jobs_given = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&jobs_given);
        let (executor, mut jobs) = executor::channel(64, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let compiler = switch.compiler();
        let (_, receiver) = controller_queues(4, 4);
        let switch = std::thread::spawn(move || while jobs.run_next(&mut switch) {});
        let runtime = Runtime::new().expect("threads");
        let config = ServerConfig {
            device_id: 3,
            cpu_port: None,
            tls: None,
            only_tls: false,
            token: None,
            holders: None,
            mappings: Mappings::default(),
            limits: ServerLimits::default(),
        };
        let listener = p4runtime_server::listen(([127, 0, 0, 1], 0).into()).expect("a port");
        let entered = runtime.enter();
        let p4runtime = bind(config, listener, executor, compiler, receiver).expect("binds");
        drop(entered);
        let config = ThriftConfig {
            device_id: 3,
            holders,
            program: Some(program.to_vec()),
            notifications: None,
            since_1970_ns: |ns| ns + 5_000,
            on_thread_start: || (),
            limits,
        };
        let listener = thrift_server::listen(0).expect("a port");
        let server = ThriftServer::start(config, listener, p4runtime.beside()).expect("threads");
        let (address, refusals) = (p4runtime.local_addr(), p4runtime.refusals());
        // It ends with the runtime.
        runtime.spawn(p4runtime.run(std::future::pending()));
        Self {
            server,
            p4runtime: address,
            refusals,
            runtime,
            jobs: jobs_given,
            switch,
        }
    }

    /// Jobs given to the switch so far.
    fn jobs(&self) -> usize {
        self.jobs.load(Ordering::Relaxed)
    }

    /// A holder bids to be primary over P4Runtime.
    fn bid(&self) {
        let update = p4::MasterArbitrationUpdate {
            device_id: 3,
            election_id: Some(p4::Uint128 { high: 0, low: 1 }),
            ..Default::default()
        };
        let bid = p4::StreamMessageRequest {
            update: Some(p4::stream_message_request::Update::Arbitration(update)),
        };
        let bid = tokio_stream::once(bid).chain(tokio_stream::pending());
        let uri = format!("http://{}", self.p4runtime);
        self.runtime.block_on(async {
            let mut client = P4RuntimeClient::connect(uri).await.expect("connects");
            let opened = client.stream_channel(bid).await.expect("opens");
            let answer = opened.into_inner().message().await.expect("open");
            answer.expect("an answer");
        });
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.local_addr()).expect("connects");
        let time = Some(Duration::from_secs(30));
        stream.set_read_timeout(time).expect("a socket");
        // The clients write a call in many pieces.
        stream.set_nodelay(true).expect("a socket");
        stream
    }

    fn protocols(&self, service: &str) -> (Input, Output) {
        let stream = self.connect();
        let output = TBinaryOutputProtocol::new(stream.try_clone().expect("a socket"), true);
        (
            TBinaryInputProtocol::new(stream, true),
            TMultiplexedOutputProtocol::new(service, output),
        )
    }

    fn standard(&self) -> StandardSyncClient<Input, Output> {
        let (input, output) = self.protocols("standard");
        StandardSyncClient::new(input, output)
    }

    fn refusals(&self, cause: &str) -> u64 {
        let counts = self.refusals.counts();
        let mut of_cause = counts.iter().filter(|count| count.cause == cause);
        of_cause.next().map_or(0, |count| count.count)
    }

    /// Ends everything, and checks that the switch's thread has not panicked.
    fn stop(self) {
        self.server.stop();
        drop(self.runtime);
        self.switch.join().expect("no panic");
    }
}

fn param(kind: Type) -> BmMatchParam {
    BmMatchParam::new(kind, None, None, None, None, None)
}

fn exact(key: &[u8]) -> BmMatchParam {
    BmMatchParam {
        exact: Some(BmMatchParamExact::new(key.to_vec())),
        ..param(Type::EXACT)
    }
}

fn lpm(key: &[u8], prefix: i32) -> BmMatchParam {
    BmMatchParam {
        lpm: Some(BmMatchParamLPM::new(key.to_vec(), prefix)),
        ..param(Type::LPM)
    }
}

fn ternary(key: &[u8], mask: &[u8]) -> BmMatchParam {
    BmMatchParam {
        ternary: Some(BmMatchParamTernary::new(key.to_vec(), mask.to_vec())),
        ..param(Type::TERNARY)
    }
}

fn range(start: &[u8], end: &[u8]) -> BmMatchParam {
    BmMatchParam {
        range: Some(BmMatchParamRange::new(start.to_vec(), end.to_vec())),
        ..param(Type::RANGE)
    }
}

fn options(priority: i32) -> BmAddEntryOptions {
    BmAddEntryOptions::new(priority)
}

/// A program, changed.
fn changed(program: &[u8], change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let mut json = serde_json::from_slice(program).expect("JSON");
    change(&mut json);
    serde_json::to_vec(&json).expect("JSON")
}

/// The code of BMv2's exception.
fn code<T: std::fmt::Debug>(result: thrift::Result<T>) -> Code {
    match result.expect_err("refused") {
        thrift::Error::User(error) => {
            let error = error.downcast_ref::<InvalidTableOperation>();
            error.and_then(|error| error.code).expect("a table's")
        }
        other => panic!("{other:?}"),
    }
}

/// The text of Thrift's own exception.
fn text<T: std::fmt::Debug>(result: thrift::Result<T>) -> String {
    match result.expect_err("refused") {
        thrift::Error::Application(error) => error.message,
        other => panic!("{other:?}"),
    }
}

fn handles(entries: &[BmMtEntry]) -> Vec<i32> {
    entries
        .iter()
        .filter_map(|entry| entry.entry_handle)
        .collect()
}

const SPECIAL: &str = "KindsIngress.special";
const SEND: &str = "KindsIngress.send";

#[test]
fn entries_have_handles_that_expire() {
    let bench = Bench::start();
    let mut client = bench.standard();
    let mut add = |last: u8| {
        let key = vec![exact(&[0, 0, 0, 0, 0, last])];
        let data = vec![vec![0, last]];
        client.bm_mt_add_entry(
            0,
            SPECIAL.to_owned(),
            key,
            SEND.to_owned(),
            data,
            options(0),
        )
    };
    for last in 0..3 {
        assert_eq!(add(last).expect("added"), i32::from(last));
    }
    assert_eq!(code(add(1)), Code::DUPLICATE_ENTRY);
    let mut client = bench.standard();
    let name = || SPECIAL.to_owned();
    client.bm_mt_delete_entry(0, name(), 1).expect("deleted");
    assert_eq!(
        code(client.bm_mt_delete_entry(0, name(), 1)),
        Code::INVALID_HANDLE
    );
    let key = vec![exact(&[0, 0, 0, 0, 0, 9])];
    let added = client.bm_mt_add_entry(
        0,
        name(),
        key.clone(),
        SEND.to_owned(),
        vec![vec![0, 9]],
        options(0),
    );
    assert_eq!(added.expect("added"), 1 << 24 | 1);
    assert_eq!(
        code(client.bm_mt_get_entry(0, name(), 1)),
        Code::EXPIRED_HANDLE
    );
    let entries = client.bm_mt_get_entries(0, name()).expect("entries");
    assert_eq!(handles(&entries), [0, 1 << 24 | 1, 2]);
    let entry = client.bm_mt_get_entry_from_key(0, name(), key.clone(), options(0));
    let entry = entry.expect("an entry");
    assert_eq!(entry.match_key, Some(key));
    let action = entry.action_entry.expect("an action");
    assert_eq!(action.action_type, Some(BmActionEntryType::ACTION_DATA));
    assert_eq!(action.action_name.as_deref(), Some(SEND));
    // As short as it can be.
    assert_eq!(action.action_data, Some(vec![vec![9]]));
    client
        .bm_mt_modify_entry(0, name(), 2, "KindsIngress.drop".to_owned(), Vec::new())
        .expect("modified");
    assert_eq!(
        client.bm_mt_get_num_entries(0, name()).expect("a number"),
        3
    );
    client
        .bm_mt_set_entry_ttl(0, name(), 2, 1_500)
        .expect("set");
    let life = client.bm_mt_get_entry(0, name(), 2).expect("an entry").life;
    assert_eq!(life.expect("a timeout").timeout_ms, Some(1_500));
    client
        .bm_mt_clear_entries(0, name(), false)
        .expect("cleared");
    let entries = client.bm_mt_get_entries(0, name()).expect("entries");
    assert_eq!(handles(&entries), [0_i32; 0]);
    bench.stop();
}

#[test]
fn keys_of_every_kind_are_checked_and_told_as_they_were_given() {
    let bench = Bench::start();
    let mut client = bench.standard();
    let drop = || ("KindsIngress.drop".to_owned(), Vec::new());
    let filters = || "KindsIngress.filters".to_owned();
    let key = vec![
        range(&[0x08, 0x00], &[0x08, 0x06]),
        ternary(&[0, 1, 2, 3, 4, 5], &[0xFF; 6]),
        ternary(&[0, 1], &[1, 0xFF]),
    ];
    let (action, data) = drop();
    let added = client.bm_mt_add_entry(0, filters(), key.clone(), action, data, options(7));
    let handle = added.expect("added");
    let entry = client
        .bm_mt_get_entry(0, filters(), handle)
        .expect("an entry");
    assert_eq!(entry.match_key.as_ref(), Some(&key));
    assert_eq!(entry.options, Some(options(7)));
    let swapped = [key[1].clone(), key[0].clone(), key[2].clone()];
    let reversed = range(&[0x08, 0x06], &[0x08, 0x00]);
    for bad in [
        key[..2].to_vec(),
        swapped.to_vec(),
        vec![reversed, key[1].clone(), key[2].clone()],
        vec![key[0].clone(), key[1].clone(), ternary(&[1], &[1])],
        vec![key[0].clone(), key[1].clone(), param(Type::TERNARY)],
    ] {
        let (action, data) = drop();
        let added = client.bm_mt_add_entry(0, filters(), bad, action, data, options(1));
        assert_eq!(code(added), Code::BAD_MATCH_KEY);
    }
    let routes = || "KindsIngress.routes".to_owned();
    let route = |prefix| vec![lpm(&[0x0A, 1, 2, 3, 4, 5], prefix), exact(&[0, 1])];
    let (action, data) = drop();
    let added = client.bm_mt_add_entry(0, routes(), route(16), action, data, options(0));
    let entry = client.bm_mt_get_entry(0, routes(), added.expect("added"));
    let entry = entry.expect("an entry");
    assert_eq!(
        entry.match_key,
        Some(vec![lpm(&[0x0A, 1, 2, 3, 4, 5], 16), exact(&[0, 1])])
    );
    assert_eq!(entry.options, Some(options(-1)));
    for prefix in [-1, 49] {
        let (action, data) = drop();
        let added = client.bm_mt_add_entry(0, routes(), route(prefix), action, data, options(0));
        assert_eq!(code(added), Code::BAD_MATCH_KEY);
    }
    bench.stop();
}

#[test]
fn a_prefix_is_counted_from_the_first_bit_of_the_first_byte() {
    // The prefix is that of the port, of 9 bits: the upper 7 bits of its first byte are none of the field's.
    let program = changed(PROGRAM, |json| {
        let table = &mut json["pipelines"][0]["tables"][1];
        for (field, kind) in [(0, "exact"), (1, "lpm")] {
            table["key"][field]["match_type"] = kind.into();
        }
    });
    let bench = Bench::of(&program);
    let mut client = bench.standard();
    let routes = || "KindsIngress.routes".to_owned();
    let mut add = |port: [u8; 2], prefix| {
        let key = vec![exact(&[0; 6]), lpm(&port, prefix)];
        let drop = "KindsIngress.drop".to_owned();
        client.bm_mt_add_entry(0, routes(), key, drop, Vec::new(), options(0))
    };
    // The highest bit of the field.
    assert_eq!(add([1, 0xFF], 8).expect("added"), 0);
    assert_eq!(code(add([1, 0], 8)), Code::DUPLICATE_ENTRY);
    // All its bits.
    assert_eq!(add([1, 0xFF], 16).expect("added"), 1);
    assert_eq!(add([1, 0xFE], 16).expect("added"), 2);
    assert_eq!(code(add([1, 0xFE], 17)), Code::BAD_MATCH_KEY);
    // Bits beyond the prefix are told as they were given, but none that the field does not have.
    assert_eq!(add([0xFF, 0x55], 12).expect("added"), 3);
    for (handle, port, prefix) in [(0, [1, 0xFF], 8), (2, [1, 0xFE], 16), (3, [1, 0x55], 12)] {
        let entry = client.bm_mt_get_entry(0, routes(), handle);
        let key = entry.expect("an entry").match_key.expect("a key");
        assert_eq!(key, [exact(&[0; 6]), lpm(&port, prefix)]);
        let found = client.bm_mt_get_entry_from_key(0, routes(), key, options(0));
        assert_eq!(found.expect("an entry").entry_handle, Some(handle));
    }
    bench.stop();
}

#[test]
fn constant_entries_have_the_priorities_of_the_program() {
    let program = changed(ENTRIES, |json| {
        for (entry, priority) in [(0, 10), (1, 20)] {
            json["pipelines"][0]["tables"][1]["entries"][entry]["priority"] = priority.into();
        }
    });
    let bench = Bench::of(&program);
    let mut client = bench.standard();
    let table = || "I.u".to_owned();
    let entries = client.bm_mt_get_entries(0, table()).expect("entries");
    let priorities: Vec<_> = entries.iter().map(|entry| entry.options.clone()).collect();
    assert_eq!(priorities, [Some(options(10)), Some(options(20))]);
    for entry in entries {
        let key = entry.match_key.clone().expect("a key");
        let given = entry.options.clone().expect("a priority");
        let found = client.bm_mt_get_entry_from_key(0, table(), key.clone(), given);
        assert_eq!(found.expect("an entry"), entry);
        for other in [-1, 0, 15, i32::MAX] {
            let found = client.bm_mt_get_entry_from_key(0, table(), key.clone(), options(other));
            assert_eq!(code(found), Code::BAD_MATCH_KEY);
        }
    }
    bench.stop();
}

#[test]
fn what_does_not_exist_is_refused_by_bmv2s_codes() {
    let bench = Bench::start();
    let mut client = bench.standard();
    let none = || "none".to_owned();
    let mut add = |table: &str, action: &str, data: Vec<Vec<u8>>| {
        let key = vec![exact(&[0, 1])];
        let (table, action) = (table.to_owned(), action.to_owned());
        client.bm_mt_add_entry(0, table, key, action, data, options(0))
    };
    assert_eq!(code(add("none", SEND, vec![])), Code::INVALID_TABLE_NAME);
    assert_eq!(
        code(add("KindsIngress.indirect", SEND, vec![])),
        Code::WRONG_TABLE_TYPE
    );
    assert_eq!(
        code(add(SPECIAL, "none", vec![])),
        Code::INVALID_ACTION_NAME
    );
    assert_eq!(code(add(SPECIAL, SEND, vec![])), Code::BAD_ACTION_DATA);
    let fixed = "KindsIngress.fixed";
    assert_eq!(
        code(add(fixed, SEND, vec![vec![1]])),
        Code::IMMUTABLE_TABLE_ENTRIES
    );
    let everything = "KindsIngress.everything";
    assert_eq!(
        code(add(everything, SEND, vec![vec![1]])),
        Code::NO_TABLE_KEY
    );
    let mut client = bench.standard();
    let set = client.bm_mt_set_default_action(0, fixed.to_owned(), SEND.to_owned(), vec![vec![1]]);
    assert_eq!(code(set), Code::DEFAULT_ENTRY_IS_CONST);
    let timeout = client.bm_mt_set_entry_ttl(0, fixed.to_owned(), 0, 1);
    assert_eq!(code(timeout), Code::AGEING_DISABLED);
    let counter = client.bm_mt_read_counter(0, fixed.to_owned(), 0);
    assert_eq!(code(counter), Code::COUNTERS_DISABLED);
    let rates = client.bm_mt_get_meter_rates(0, fixed.to_owned(), 0);
    assert_eq!(code(rates), Code::METERS_DISABLED);
    let member = client.bm_mt_act_prof_get_member(0, none(), 0);
    assert_eq!(code(member), Code::INVALID_ACTION_PROFILE_NAME);
    // BMv2 tells nothing of a table that it does not have.
    assert_eq!(client.bm_mt_get_entries(0, none()).expect("none"), []);
    let default = client.bm_mt_get_default_entry(0, none()).expect("none");
    assert_eq!(default.action_type, Some(BmActionEntryType::NONE));
    assert!(client.bm_counter_read(0, none(), 0).is_err());
    assert!(client.bm_meter_get_rates(0, none(), 0).is_err());
    assert!(client.bm_register_read(0, none(), 0).is_err());
    assert!(client.bm_parse_vset_get(0, none()).is_err());
    assert!(client.bm_learning_ack_buffer(0, 77, 0).is_err());
    assert!(client.bm_dev_mgr_remove_port(9).is_err());
    let context = client.bm_mt_get_num_entries(1, SPECIAL.to_owned());
    assert!(text(context).contains("one context"));
    assert!(text(client.bm_serialize_state()).contains("not supported"));
    bench.stop();
}

#[test]
fn members_and_groups_as_in_bmv2() {
    let bench = Bench::start();
    let mut client = bench.standard();
    let paths = || "KindsIngress.paths".to_owned();
    let spread = || "KindsIngress.spread".to_owned();
    let send = |port: u8| (SEND.to_owned(), vec![vec![0, port]]);
    for expected in 0..2 {
        let (action, data) = send(expected + 1);
        let member = client.bm_mt_act_prof_add_member(0, paths(), action, data);
        assert_eq!(member.expect("added"), i32::from(expected));
    }
    let group = client
        .bm_mt_act_prof_create_group(0, paths())
        .expect("created");
    assert_eq!(group, 0);
    let key = |last: u8| vec![exact(&[0, 0, 0, 0, 0, last])];
    let empty = client.bm_mt_indirect_ws_add_entry(0, spread(), key(1), group, options(0));
    assert_eq!(code(empty), Code::EMPTY_GRP);
    let add = client.bm_mt_act_prof_add_member_to_group(0, paths(), 1, group);
    add.expect("added");
    let again = client.bm_mt_act_prof_add_member_to_group(0, paths(), 1, group);
    assert_eq!(code(again), Code::MBR_ALREADY_IN_GRP);
    let not_in = client.bm_mt_act_prof_remove_member_from_group(0, paths(), 0, group);
    assert_eq!(code(not_in), Code::MBR_NOT_IN_GRP);
    client
        .bm_mt_indirect_ws_add_entry(0, spread(), key(1), group, options(0))
        .expect("added");
    client
        .bm_mt_indirect_add_entry(0, spread(), key(2), 0, options(0))
        .expect("added");
    let unknown = client.bm_mt_indirect_add_entry(0, spread(), key(3), 5, options(0));
    assert_eq!(code(unknown), Code::INVALID_MBR_HANDLE);
    let entries = client.bm_mt_get_entries(0, spread()).expect("entries");
    let actions = entries
        .iter()
        .filter_map(|entry| entry.action_entry.clone());
    let actions: Vec<_> = actions.map(|a| (a.mbr_handle, a.grp_handle)).collect();
    assert_eq!(actions, [(None, Some(0)), (Some(0), None)]);
    for used in [0, 1] {
        let deleted = client.bm_mt_act_prof_delete_member(0, paths(), used);
        assert_eq!(code(deleted), Code::MBR_STILL_USED);
    }
    let deleted = client.bm_mt_act_prof_delete_group(0, paths(), group);
    assert_eq!(code(deleted), Code::GRP_STILL_USED);
    let groups = client
        .bm_mt_act_prof_get_groups(0, paths())
        .expect("groups");
    assert_eq!(groups[0].mbr_handles, Some(vec![1]));
    // A default entry uses its member, too.
    let (action, data) = send(9);
    let member = client.bm_mt_act_prof_add_member(0, paths(), action, data);
    assert_eq!(member.expect("added"), 2);
    client
        .bm_mt_indirect_set_default_member(0, spread(), 2)
        .expect("set");
    let default = client
        .bm_mt_get_default_entry(0, spread())
        .expect("a default");
    assert_eq!(default.mbr_handle, Some(2));
    let deleted = client.bm_mt_act_prof_delete_member(0, paths(), 2);
    assert_eq!(code(deleted), Code::MBR_STILL_USED);
    client
        .bm_mt_indirect_ws_set_default_group(0, spread(), group)
        .expect("set");
    client
        .bm_mt_act_prof_delete_member(0, paths(), 2)
        .expect("deleted");
    client
        .bm_mt_indirect_reset_default_entry(0, spread())
        .expect("reset");
    let default = client
        .bm_mt_get_default_entry(0, spread())
        .expect("a default");
    assert_eq!(default.action_type, Some(BmActionEntryType::NONE));
    bench.stop();
}

#[test]
fn long_answers_with_members_or_groups_have_limits() {
    long_answers_are_refused(0, None);
}

#[test]
fn strangers_have_long_answers_of_their_own_and_half_as_many() {
    long_answers_are_refused(1, Some(Vec::new()));
}

/// With this limit no long answer is given to a client, which is a stranger unless `holders` is `None`.
fn long_answers_are_refused(long_answers: usize, holders: Option<Vec<u32>>) {
    const OBJECTS: i32 = 4_097;
    let program = changed(PROGRAM, |json| {
        json["pipelines"][0]["action_profiles"][0]["max_size"] = OBJECTS.into();
    });
    let limits = ThriftLimits {
        long_answers,
        ..ThriftLimits::default()
    };
    let bench = Bench::with(&program, limits, holders);
    let mut client = bench.standard();
    let paths = || "KindsIngress.paths".to_owned();
    for handle in 0..OBJECTS {
        if handle == OBJECTS - 1 {
            // One fewer is no long answer.
            let members = client.bm_mt_act_prof_get_members(0, paths());
            assert_eq!(members.expect("members").len(), 4_096);
            let groups = client.bm_mt_act_prof_get_groups(0, paths());
            assert_eq!(groups.expect("groups").len(), 4_096);
        }
        let data = vec![vec![0, 1]];
        let member = client.bm_mt_act_prof_add_member(0, paths(), SEND.to_owned(), data);
        assert_eq!(member.expect("added"), handle);
        let group = client.bm_mt_act_prof_create_group(0, paths());
        assert_eq!(group.expect("created"), handle);
    }
    let members = client.bm_mt_act_prof_get_members(0, paths());
    assert!(text(members).contains("long answers are under way"));
    let groups = client.bm_mt_act_prof_get_groups(0, paths());
    assert!(text(groups).contains("long answers are under way"));
    assert_eq!(bench.refusals("thrift-answers-full"), 2);
    bench.stop();
}

#[test]
fn handles_of_members_are_the_lowest_that_are_free() {
    let bench = Bench::start();
    let mut client = bench.standard();
    let shared = || "KindsIngress.shared".to_owned();
    let add = |client: &mut StandardSyncClient<Input, Output>| {
        client.bm_mt_act_prof_add_member(0, shared(), SEND.to_owned(), vec![vec![0, 1]])
    };
    for expected in 0..4 {
        assert_eq!(add(&mut client).expect("added"), expected);
    }
    assert_eq!(code(add(&mut client)), Code::TABLE_FULL);
    for freed in [2, 1] {
        let deleted = client.bm_mt_act_prof_delete_member(0, shared(), freed);
        deleted.expect("deleted");
    }
    assert_eq!(add(&mut client).expect("added"), 1);
    assert_eq!(add(&mut client).expect("added"), 2);
    bench.stop();
}

#[test]
fn meters_of_entries_are_an_array_too() {
    let bench = Bench::start();
    let mut client = bench.standard();
    let routes = || "KindsIngress.routes".to_owned();
    let meter = || "KindsIngress.route_meter".to_owned();
    let rate = |rate, burst| BmMeterRateConfig::new(OrderedFloat(rate), burst);
    let rates = vec![rate(0.5, 1_000), rate(1.5, 2_000)];
    let add = |client: &mut StandardSyncClient<Input, Output>, last| {
        let key = vec![lpm(&[2, 0, 0, 0, 0, last], 48), exact(&[0, 1])];
        let data = vec![vec![2, 0, 0, 0, 0, 1], vec![0, 2]];
        let action = "KindsIngress.set_dst".to_owned();
        let added = client.bm_mt_add_entry(0, routes(), key, action, data, options(0));
        added.expect("added")
    };
    for last in 0..2 {
        add(&mut client, last);
    }
    assert_eq!(client.bm_meter_get_rates(0, meter(), 1).expect("read"), []);
    let set = client.bm_meter_array_set_rates(0, meter(), rates.clone());
    set.expect("set");
    let other = vec![rate(2.0, 10), rate(3.0, 20)];
    client
        .bm_meter_set_rates(0, meter(), 1, other.clone())
        .expect("set");
    for (handle, expected) in [(0, &rates), (1, &other)] {
        let of_entry = client.bm_mt_get_meter_rates(0, routes(), handle);
        assert_eq!(of_entry.expect("read"), *expected);
        let of_array = client.bm_meter_get_rates(0, meter(), handle);
        assert_eq!(of_array.expect("read"), *expected);
    }
    // The table has 4 entries at most.
    assert!(client.bm_meter_get_rates(0, meter(), 4).is_err());
    let set = client.bm_meter_set_rates(0, meter(), 3, rates.clone());
    set.expect("no entry has it");
    // Rates are those of an index: entries that come later have them.
    client.bm_mt_delete_entry(0, routes(), 1).expect("deleted");
    for (last, index, expected) in [(5, 1, &other), (6, 2, &rates), (7, 3, &rates)] {
        let of_array = client.bm_meter_get_rates(0, meter(), index);
        assert_eq!(of_array.expect("read"), *expected);
        let handle = add(&mut client, last);
        let of_entry = client.bm_mt_get_meter_rates(0, routes(), handle);
        assert_eq!(of_entry.expect("read"), *expected);
    }
    let set = client.bm_mt_set_meter_rates(0, routes(), 2, other.clone());
    set.expect("set");
    let cleared = client.bm_mt_clear_entries(0, routes(), false);
    cleared.expect("cleared");
    for (last, expected) in [(1, &rates), (2, &other), (3, &other)] {
        let handle = add(&mut client, last);
        let of_entry = client.bm_mt_get_meter_rates(0, routes(), handle);
        assert_eq!(of_entry.expect("read"), *expected);
    }
    for wrong in [&rates[..1], &[rate(2.0, 1), rate(1.0, 1)]] {
        let set = client.bm_meter_array_set_rates(0, meter(), wrong.to_vec());
        assert!(set.is_err());
    }
    client.bm_reset_state().expect("reset");
    assert_eq!(client.bm_meter_get_rates(0, meter(), 1).expect("read"), []);
    let handle = add(&mut client, 1);
    let of_entry = client.bm_mt_get_meter_rates(0, routes(), handle);
    assert_eq!(of_entry.expect("read"), []);
    bench.stop();
}

#[test]
fn arrays_and_value_sets() {
    let bench = Bench::start();
    let mut client = bench.standard();
    let seen = || "KindsIngress.seen".to_owned();
    let value = BmCounterValue::new(1_500, 3);
    client
        .bm_counter_write(0, seen(), 15, value.clone())
        .expect("written");
    assert_eq!(client.bm_counter_read(0, seen(), 15).expect("read"), value);
    for index in [-1, 16] {
        assert!(client.bm_counter_read(0, seen(), index).is_err());
    }
    client.bm_counter_reset_all(0, seen()).expect("reset");
    let zero = BmCounterValue::new(0, 0);
    assert_eq!(client.bm_counter_read(0, seen(), 15).expect("read"), zero);
    let marks = || "KindsIngress.marks".to_owned();
    client
        .bm_register_write(0, marks(), 9_999, -1)
        .expect("written");
    client
        .bm_register_write_range(0, marks(), 2, 1_000, 0x1_234)
        .expect("written");
    let cells = client.bm_register_read_all(0, marks()).expect("read");
    assert_eq!(cells.len(), 10_000);
    assert_eq!(cells[..3], [0, 0, 0x234]);
    assert_eq!((cells[999], cells[1_000], cells[9_999]), (0x234, 0, 0xFFF));
    assert!(client.bm_register_write_range(0, marks(), 3, 2, 0).is_err());
    assert!(
        client
            .bm_register_write_range(0, marks(), 0, 10_001, 0)
            .is_err()
    );
    client.bm_register_reset(0, marks()).expect("reset");
    assert_eq!(client.bm_register_read(0, marks(), 9_999).expect("read"), 0);
    let limits = || "KindsIngress.limits".to_owned();
    let rate = |rate, burst| BmMeterRateConfig::new(OrderedFloat(rate), burst);
    let rates = vec![rate(0.5, 1_000), rate(1.5, 2_000)];
    assert_eq!(client.bm_meter_get_rates(0, limits(), 7).expect("read"), []);
    client
        .bm_meter_array_set_rates(0, limits(), rates.clone())
        .expect("set");
    assert_eq!(
        client.bm_meter_get_rates(0, limits(), 7).expect("read"),
        rates
    );
    assert!(
        client
            .bm_meter_set_rates(0, limits(), 7, rates[..1].to_vec())
            .is_err()
    );
    let types = || "KindsParser.types".to_owned();
    client
        .bm_parse_vset_add(0, types(), vec![0x12, 0x34])
        .expect("added");
    // The command line's form of it.
    client
        .bm_parse_vset_add(0, types(), vec![0, 0x12, 0x34])
        .expect("no error");
    for wrong in [vec![0x34], vec![1, 0x12, 0x34]] {
        assert!(client.bm_parse_vset_add(0, types(), wrong).is_err());
    }
    let values = client.bm_parse_vset_get(0, types()).expect("read");
    assert_eq!(values, [[0x12, 0x34]]);
    client
        .bm_parse_vset_remove(0, types(), vec![0x12, 0x34])
        .expect("removed");
    assert!(
        client
            .bm_parse_vset_get(0, types())
            .expect("read")
            .is_empty()
    );
    bench.stop();
}

#[test]
fn a_wide_register_is_read_as_the_greatest_number_if_it_is_greater() {
    let program = changed(PROGRAM, |json| {
        json["register_arrays"][0]["bitwidth"] = 96.into();
    });
    let bench = Bench::of(&program);
    let mut client = bench.standard();
    let marks = || "KindsIngress.marks".to_owned();
    // All 96 bits are ones.
    client
        .bm_register_write(0, marks(), 1, -1)
        .expect("written");
    client
        .bm_register_write(0, marks(), 2, i64::MAX - 1)
        .expect("written");
    let expected = [0, i64::MAX, i64::MAX - 1];
    let cells = client.bm_register_read_all(0, marks()).expect("read");
    assert_eq!(cells[..3], expected);
    for (cell, value) in (0..).zip(expected) {
        let read = client.bm_register_read(0, marks(), cell);
        assert_eq!(read.expect("read"), value);
    }
    bench.stop();
}

#[test]
fn groups_lags_and_mirrors_reach_the_switch() {
    let bench = Bench::start();
    let (input, output) = bench.protocols("simple_pre_lag");
    let mut pre = SimplePreLAGSyncClient::new(input, output);
    let (input, output) = bench.protocols("simple_switch");
    let mut target = SimpleSwitchSyncClient::new(input, output);
    assert_eq!(pre.bm_mc_mgrp_create(0, 5).expect("created"), 5);
    // Ports 1 and 9, of which the switch has the first; LAG 3.
    let node = pre.bm_mc_node_create(0, 7, "1000000010".to_owned(), "1000".to_owned());
    let node = node.expect("created");
    pre.bm_mc_set_lag_membership(0, 3, "100".to_owned())
        .expect("set");
    pre.bm_mc_node_associate(0, 5, node).expect("associated");
    assert!(pre.bm_mc_node_associate(0, 5, node).is_err());
    let entries = pre.bm_mc_get_entries(0).expect("entries");
    assert!(entries.contains(r#""ports":[1,9]"#), "{entries}");
    assert!(text(pre.bm_mc_node_create(0, 1, "12".to_owned(), String::new())).contains("port_map"));
    let session = MirroringSessionConfig::new(None, 5);
    target
        .mirroring_session_add(100, session.clone())
        .expect("added");
    assert_eq!(
        target.mirroring_session_get(100).expect("a session"),
        session
    );
    assert!(target.mirroring_session_get(101).is_err());
    assert!(target.mirroring_session_delete(101).is_err());
    target.mirroring_session_delete(100).expect("deleted");
    target.set_all_egress_queue_rates(1_000).expect("set");
    target.set_egress_queue_depth(1, 10).expect("set");
    assert!(text(target.set_egress_priority_queue_depth(1, 1, 10)).contains("has one queue"));
    target
        .set_egress_priority_queue_rate(2, 7, 1_000)
        .expect("set");
    target
        .set_egress_priority_queue_depth(2, 7, 10)
        .expect("set");
    assert!(text(target.set_egress_priority_queue_rate(2, 8, 10)).contains("has 8 queues"));
    assert!(text(target.set_egress_priority_queue_rate(2, -1, 10)).contains("has 8 queues"));
    // simple_switch has queues of ports that it does not have.
    target
        .set_egress_priority_queue_depth(9, 7, 10)
        .expect("ignored");
    assert!(text(target.set_egress_priority_queue_depth(9, 8, 10)).contains("has 8 queues"));
    assert!(text(target.set_egress_priority_queue_rate(9, -1, 10)).contains("has 8 queues"));
    assert_eq!(target.get_time_elapsed_us().expect("a time"), 0);
    assert_eq!(target.get_time_since_epoch_us().expect("a time"), 5);
    bench.stop();
}

#[test]
fn a_port_is_removed_and_comes_back_with_its_interface_only() {
    let bench = Bench::start();
    let mut client = bench.standard();
    let shown = || {
        let ports = bench.standard().bm_dev_mgr_show_ports().expect("ports");
        let names = ports.into_iter().map(|p| (p.port_num, p.iface_name));
        names.collect::<Vec<_>>()
    };
    let named = |port: i32| (Some(port), Some(format!("veth{port}")));
    assert_eq!(shown(), [named(1), named(2)]);
    client.bm_dev_mgr_remove_port(2).expect("it is there");
    assert_eq!(shown(), [named(1)]);
    for port in [2, 3, -1, 65_537] {
        assert!(client.bm_dev_mgr_remove_port(port).is_err(), "{port}");
    }
    let mut add = |interface: &str, port, captures: &str| {
        client.bm_dev_mgr_add_port(interface.to_owned(), port, captures.to_owned())
    };
    for (interface, port, captures) in [
        ("veth1", 1, ""),
        ("veth2", 3, ""),
        ("veth2", -1, ""),
        ("veth2", 65_538, ""),
        ("veth3", 2, ""),
        ("", 2, ""),
        ("veth2", 2, "veth2.pcap"),
    ] {
        let refused = add(interface, port, captures);
        assert!(refused.is_err(), "{interface} {port} {captures}");
    }
    assert_eq!(shown(), [named(1)]);
    add("veth2", 2, "").expect("it was removed");
    assert_eq!(shown(), [named(1), named(2)]);
    bench.stop();
}

#[test]
fn a_program_is_loaded_swapped_and_reset() {
    let bench = Bench::start();
    let mut client = bench.standard();
    let json = String::from_utf8(PROGRAM.to_vec()).expect("text");
    assert_eq!(client.bm_get_config().expect("a program"), json);
    let id = client.bm_get_id_from_name(0, BmResourceType::MATCH_TABLE, SPECIAL.to_owned());
    assert_eq!(id.expect("an id"), 7);
    let marks = || "KindsIngress.marks".to_owned();
    client.bm_register_write(0, marks(), 0, 5).expect("written");
    let swap_code = |result: thrift::Result<()>| match result.expect_err("refused") {
        thrift::Error::User(error) => {
            let error = error.downcast_ref::<InvalidSwapOperation>();
            error.and_then(|error| error.code).expect("a swap's")
        }
        other => panic!("{other:?}"),
    };
    let swapped = client.bm_swap_configs();
    assert_eq!(swap_code(swapped), SwapOperationErrorCode::NO_ONGOING_SWAP);
    assert!(text(client.bm_load_new_config("{}".to_owned())).contains("config_str"));
    let spaced = format!(" {json}");
    client.bm_load_new_config(spaced.clone()).expect("loaded");
    let again = client.bm_load_new_config(json);
    assert_eq!(swap_code(again), SwapOperationErrorCode::ONGOING_SWAP);
    // From now on, clients see the new program.
    assert_eq!(client.bm_get_config().expect("a program"), spaced);
    assert_eq!(client.bm_register_read(0, marks(), 0).expect("read"), 0);
    client.bm_register_write(0, marks(), 0, 6).expect("written");
    client.bm_swap_configs().expect("swapped");
    assert_eq!(client.bm_register_read(0, marks(), 0).expect("read"), 6);
    let key = vec![exact(&[0; 6])];
    let data = vec![vec![0, 1]];
    client
        .bm_mt_add_entry(
            0,
            SPECIAL.to_owned(),
            key,
            SEND.to_owned(),
            data,
            options(0),
        )
        .expect("added");
    let types = || "KindsParser.types".to_owned();
    let value = vec![0x12, 0x34];
    client
        .bm_parse_vset_add(0, types(), value.clone())
        .expect("added");
    client.bm_reset_state().expect("reset");
    assert_eq!(client.bm_register_read(0, marks(), 0).expect("read"), 0);
    let values = client.bm_parse_vset_get(0, types()).expect("read");
    assert_eq!(values, [value]);
    let entries = |client: &mut StandardSyncClient<Input, Output>, table: &str| {
        client
            .bm_mt_get_num_entries(0, table.to_owned())
            .expect("a number")
    };
    assert_eq!(entries(&mut client, SPECIAL), 0);
    assert_eq!(entries(&mut client, "KindsIngress.fixed"), 2);
    bench.stop();
}

#[test]
fn strangers_may_change_what_no_holder_controls() {
    // No user is a holder: all are strangers, and no holder has ever bid.
    let bench = Bench::with(PROGRAM, ThriftLimits::default(), Some(Vec::new()));
    let mut client = bench.standard();
    client.bm_reset_state().expect("allowed");
    bench.stop();
}

#[test]
fn a_stranger_beside_a_holder_gives_the_switch_no_job() {
    let bench = Bench::with(PROGRAM, ThriftLimits::default(), Some(Vec::new()));
    bench.bid();
    let before = bench.jobs();
    let mut client = bench.standard();
    let json = String::from_utf8(PROGRAM.to_vec()).expect("text");
    let key = vec![exact(&[0; 6])];
    let refused = [
        client.bm_reset_state(),
        client.bm_load_new_config(json),
        client.bm_swap_configs(),
        client.bm_mt_clear_entries(0, SPECIAL.to_owned(), false),
        client.bm_mt_delete_entry(0, SPECIAL.to_owned(), 0),
        client.bm_counter_reset_all(0, "KindsIngress.seen".to_owned()),
        client.bm_register_write(0, "KindsIngress.marks".to_owned(), 0, 1),
        client
            .bm_mt_add_entry(
                0,
                SPECIAL.to_owned(),
                key,
                SEND.to_owned(),
                Vec::new(),
                options(0),
            )
            .map(drop),
    ];
    for refused in refused {
        assert!(text(refused).contains("not allowed"));
    }
    assert_eq!(bench.refusals("thrift-stranger"), 8);
    // Of a long program, only the length is read.
    let mut program = call("standard:bm_load_new_config");
    program.extend([11, 0, 1]);
    program.extend((2_i32 << 20).to_be_bytes());
    answer(&bench, &program);
    assert_eq!(bench.refusals("thrift-message-too-long"), 1);
    assert_eq!(bench.jobs(), before);
    // A read is a job.
    client
        .bm_register_read(0, "KindsIngress.marks".to_owned(), 0)
        .expect("read");
    assert_eq!(bench.jobs(), before + 1);
    bench.stop();
}

/// Sends bytes, and returns the answer until the server closes the connection.
fn answer(bench: &Bench, bytes: &[u8]) -> Vec<u8> {
    let mut stream = bench.connect();
    stream.write_all(bytes).expect("sent");
    let mut answer = Vec::new();
    // Closed with bytes that the server has not read: the kernel may say so by a reset.
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// The beginning of a call.
fn call(name: &str) -> Vec<u8> {
    let mut bytes = vec![0x80, 1, 0, 1];
    bytes.extend((name.len() as u32).to_be_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend([0, 0, 0, 1]);
    bytes
}

#[test]
fn bad_input_ends_its_connection_and_nothing_else() {
    let bench = Bench::start();
    let mut other = bench.standard();
    assert!(answer(&bench, b"GET / HTTP/1.1\r\n\r\n").is_empty());
    assert_eq!(bench.refusals("thrift-malformed"), 1);
    let string = |length: i32| {
        let mut bytes = call("standard:bm_mt_get_num_entries");
        bytes.extend([11, 0, 2]);
        bytes.extend(length.to_be_bytes());
        bytes
    };
    answer(&bench, &string(i32::MAX));
    answer(&bench, &string(2 << 20));
    assert_eq!(bench.refusals("thrift-message-too-long"), 2);
    let mut list = call("standard:bm_mt_add_entry");
    list.extend([15, 0, 3, 12]);
    list.extend(i32::MAX.to_be_bytes());
    answer(&bench, &list);
    assert_eq!(bench.refusals("thrift-list-too-long"), 1);
    // Unknown calls are answered, and the connection goes on.
    for name in ["standard:none", "none:none", "none"] {
        let mut stream = bench.connect();
        let mut bytes = call(name);
        bytes.push(0);
        stream.write_all(&bytes).expect("sent");
        let mut begin = [0; 4];
        stream.read_exact(&mut begin).expect("an answer");
        assert_eq!(begin, [0x80, 1, 0, 3], "{name}: an exception");
    }
    // An argument that is missing.
    let mut stream = bench.connect();
    let mut bytes = call("standard:bm_mt_get_num_entries");
    bytes.push(0);
    stream.write_all(&bytes).expect("sent");
    let mut begin = [0; 4];
    stream.read_exact(&mut begin).expect("an answer");
    assert_eq!(begin[3], 3);
    assert_eq!(
        other
            .bm_mt_get_num_entries(0, SPECIAL.to_owned())
            .expect("a number"),
        0
    );
    bench.stop();
}

#[test]
fn connections_and_answers_have_limits() {
    let limits = ThriftLimits {
        connections: 2,
        answer_elements: 9_999,
        message_time: Duration::from_millis(50),
        ..ThriftLimits::default()
    };
    let bench = Bench::with(PROGRAM, limits, None);
    let mut first = bench.standard();
    first.bm_mgmt_get_info().expect("answered");
    let long = first.bm_register_read_all(0, "KindsIngress.marks".to_owned());
    assert!(text(long).contains("more than 9999"));
    let mut second = bench.standard();
    second.bm_mgmt_get_info().expect("answered");
    // The third is closed at once.
    assert!(answer(&bench, &call("standard:bm_mgmt_get_info")).is_empty());
    assert_eq!(bench.refusals("thrift-connections-full"), 1);
    drop(second);
    // A message that does not end: its connection ends, and the place is free again.
    loop {
        // The place of the one before is free a moment after it has gone.
        let before = bench.refusals("thrift-slow");
        answer(&bench, &[0x80, 1]);
        if bench.refusals("thrift-slow") > before {
            break;
        }
    }
    first.bm_mgmt_get_info().expect("answered");
    bench.stop();
}
