//! Arbitration, case by case, as controllers on real streams see it (specification, sections "Rules
//! for Handling MasterArbitrationUpdate Messages Received from Controllers" and "Client Arbitration
//! Notifications").

use std::collections::BTreeMap;

use p4::stream_message_request::Update as ToSwitch;
use p4::stream_message_response::Update as FromSwitch;
use p4runtime_server::ServerLimits;
use p4runtime_server::proto::p4::v1 as p4;
use tonic::Code;

use crate::support::{Controller, DEVICE, Server, code};

/// A notification of a controller: its status and the highest election id.
type Told = (&'static str, Code, Option<u128>);

/// One step of a case; controllers are named by one letter and open their streams when first named.
enum Step {
    /// Sends an update for the default role; these controllers are notified.
    Elect(&'static str, Option<u128>, &'static [Told]),
    /// As [`Step::Elect`], for a role.
    InRole(&'static str, &'static str, Option<u128>, &'static [Told]),
    /// Sends an update that ends its stream with this code; these other controllers are notified.
    Refused(&'static str, Wrong, Code, &'static [Told]),
    /// Ends its stream; these controllers are notified.
    Leaves(&'static str, &'static [Told]),
    /// A write with this role and election id has this result.
    Writes(&'static str, &'static str, Option<u128>, Code),
}

/// The fault of an update.
enum Wrong {
    /// None, with this election id.
    Id(u128),
    /// For another device.
    Device,
    /// For this role, with this id.
    Role(&'static str, u128),
    /// With a definition of the role in an unknown scheme.
    Config,
    /// With a numeric role.
    NumericRole,
}

use Step::{Elect, InRole, Leaves, Refused, Writes};

const OK: Code = Code::Ok;
const EXISTS: Code = Code::AlreadyExists;
const NONE: Code = Code::NotFound;
const DENIED: Code = Code::PermissionDenied;
const HIGH: u128 = 1 << 64;

/// Name and steps of every case.
const CASES: &[(&str, &[Step])] = &[
    (
        "the first with an id is primary",
        &[Elect("a", Some(1), &[("a", OK, Some(1))])],
    ),
    (
        "id 0 that is set is an id",
        &[
            Elect("a", Some(0), &[("a", OK, Some(0))]),
            Writes("a", "", Some(0), OK),
        ],
    ),
    (
        "an unset id is never primary",
        &[
            Elect("a", None, &[("a", NONE, None)]),
            Writes("a", "", None, DENIED),
            Writes("a", "", Some(0), DENIED),
        ],
    ),
    (
        "two may be without an id",
        &[
            Elect("a", None, &[("a", NONE, None)]),
            Elect("b", None, &[("b", NONE, None)]),
        ],
    ),
    (
        "a first primary is told to those who waited",
        &[
            Elect("a", None, &[("a", NONE, None)]),
            Elect("b", Some(3), &[("a", EXISTS, Some(3)), ("b", OK, Some(3))]),
        ],
    ),
    (
        "a lower id is a backup, told alone",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
        ],
    ),
    (
        "a higher id takes over",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(6), &[("a", EXISTS, Some(6)), ("b", OK, Some(6))]),
            Writes("a", "", Some(5), DENIED),
            Writes("b", "", Some(6), OK),
        ],
    ),
    (
        "ids are 128 bits wide",
        &[
            Elect(
                "a",
                Some(u64::MAX as u128),
                &[("a", OK, Some(u64::MAX as u128))],
            ),
            Elect(
                "b",
                Some(HIGH),
                &[("a", EXISTS, Some(HIGH)), ("b", OK, Some(HIGH))],
            ),
            Writes("b", "", Some(HIGH), OK),
            Writes("b", "", Some(0), DENIED),
        ],
    ),
    (
        "a backup rises to primary on its stream",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
            Elect("b", Some(7), &[("a", EXISTS, Some(7)), ("b", OK, Some(7))]),
        ],
    ),
    (
        "a primary that raises its id stays",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
            Elect("a", Some(8), &[("a", OK, Some(8)), ("b", EXISTS, Some(8))]),
            Writes("a", "", Some(5), DENIED),
            Writes("a", "", Some(8), OK),
        ],
    ),
    (
        "a primary that repeats its id is confirmed to all",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
            Elect("a", Some(5), &[("a", OK, Some(5)), ("b", EXISTS, Some(5))]),
        ],
    ),
    (
        "a backup that repeats its id is told alone",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
        ],
    ),
    (
        "a primary that lowers its id leaves none",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
            Elect("a", Some(3), &[("a", NONE, Some(5)), ("b", NONE, Some(5))]),
            Writes("a", "", Some(3), DENIED),
            Writes("b", "", Some(4), DENIED),
        ],
    ),
    (
        "a primary that unsets its id leaves none",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("a", None, &[("a", NONE, Some(5))]),
            Writes("a", "", Some(5), DENIED),
        ],
    ),
    (
        "none is chosen below the highest id ever",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("a", Some(3), &[("a", NONE, Some(5))]),
            Elect("b", Some(4), &[("b", NONE, Some(5))]),
            Elect("b", Some(5), &[("a", EXISTS, Some(5)), ("b", OK, Some(5))]),
        ],
    ),
    (
        "the end of a primary is told, and leaves none",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
            Elect("c", None, &[("c", EXISTS, Some(5))]),
            Leaves("a", &[("b", NONE, Some(5)), ("c", NONE, Some(5))]),
            Writes("b", "", Some(4), DENIED),
            Writes("b", "", Some(5), DENIED),
        ],
    ),
    (
        "the id of one that has gone may be used again",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
            Leaves("a", &[("b", NONE, Some(5))]),
            Elect("c", Some(5), &[("b", EXISTS, Some(5)), ("c", OK, Some(5))]),
            Writes("c", "", Some(5), OK),
        ],
    ),
    (
        "the end of a backup is told to nobody",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
            Leaves("b", &[]),
            Writes("a", "", Some(5), OK),
        ],
    ),
    (
        "a taken id ends a new stream",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Refused("b", Wrong::Id(5), Code::InvalidArgument, &[]),
            Writes("a", "", Some(5), OK),
        ],
    ),
    (
        "a taken id ends a live stream",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
            Refused("b", Wrong::Id(5), Code::InvalidArgument, &[]),
            Writes("a", "", Some(5), OK),
        ],
    ),
    (
        "a primary that takes a backup's id ends, and leaves none",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
            Refused(
                "a",
                Wrong::Id(4),
                Code::InvalidArgument,
                &[("b", NONE, Some(5))],
            ),
        ],
    ),
    (
        "an unknown device is not found",
        &[Refused("a", Wrong::Device, Code::NotFound, &[])],
    ),
    (
        "another device on a live stream",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Refused("a", Wrong::Device, Code::FailedPrecondition, &[]),
        ],
    ),
    (
        "another role on a live stream",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            Refused("a", Wrong::Role("x", 5), Code::FailedPrecondition, &[]),
        ],
    ),
    (
        "no role on the live stream of a role",
        &[
            InRole("a", "x", Some(5), &[("a", OK, Some(5))]),
            Refused("a", Wrong::Role("", 6), Code::FailedPrecondition, &[]),
        ],
    ),
    (
        "a role without a name is the default role",
        &[
            InRole("a", "", Some(5), &[("a", OK, Some(5))]),
            Elect("b", Some(4), &[("b", EXISTS, Some(5))]),
            Writes("a", "", Some(5), OK),
        ],
    ),
    (
        "a definition of another scheme ends a new stream",
        &[Refused("a", Wrong::Config, Code::InvalidArgument, &[])],
    ),
    (
        "a definition of another scheme ends a live stream",
        &[
            InRole("a", "x", Some(5), &[("a", OK, Some(5))]),
            Refused("a", Wrong::Config, Code::InvalidArgument, &[]),
        ],
    ),
    (
        "a numeric role ends the stream",
        &[Refused("a", Wrong::NumericRole, Code::InvalidArgument, &[])],
    ),
    (
        "each role has a primary of its own",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            InRole("b", "x", Some(3), &[("b", OK, Some(3))]),
            InRole(
                "c",
                "x",
                Some(5),
                &[("b", EXISTS, Some(5)), ("c", OK, Some(5))],
            ),
            Writes("a", "", Some(5), OK),
            Writes("b", "x", Some(3), DENIED),
            Writes("c", "x", Some(5), OK),
        ],
    ),
    (
        "the end of a role's primary is told in the role",
        &[
            Elect("a", Some(5), &[("a", OK, Some(5))]),
            InRole("b", "x", Some(3), &[("b", OK, Some(3))]),
            InRole("c", "x", Some(2), &[("c", EXISTS, Some(3))]),
            Leaves("b", &[("c", NONE, Some(3))]),
            Writes("a", "", Some(5), OK),
        ],
    ),
    (
        "a write names its role as well as its id",
        &[
            InRole("a", "x", Some(5), &[("a", OK, Some(5))]),
            Writes("a", "", Some(5), DENIED),
            Writes("a", "y", Some(5), NONE),
            Writes("a", "x", None, DENIED),
            Writes("a", "x", Some(4), DENIED),
            Writes("a", "x", Some(5), OK),
        ],
    ),
    (
        "one too many ends its stream",
        &[
            Elect("a", Some(1), &[("a", OK, Some(1))]),
            Elect("b", None, &[("b", EXISTS, Some(1))]),
            Elect("c", None, &[("c", EXISTS, Some(1))]),
            Refused("d", Wrong::Id(9), Code::ResourceExhausted, &[]),
            InRole("e", "x", Some(1), &[("e", OK, Some(1))]),
        ],
    ),
];

fn election(id: u128) -> p4::Uint128 {
    p4::Uint128 {
        high: u64::try_from(id >> 64).expect("64 bits"),
        low: u64::try_from(id & u128::from(u64::MAX)).expect("64 bits"),
    }
}

fn update(role: Option<p4::Role>, id: Option<u128>) -> p4::MasterArbitrationUpdate {
    p4::MasterArbitrationUpdate {
        device_id: DEVICE,
        role,
        election_id: id.map(election),
        status: None,
    }
}

fn role(name: &str) -> Option<p4::Role> {
    Some(p4::Role {
        name: name.to_owned(),
        ..Default::default()
    })
}

/// The controllers of a case.
struct Case<'a> {
    name: &'static str,
    server: &'a Server,
    controllers: BTreeMap<&'static str, Controller>,
}

impl Case<'_> {
    async fn controller(&mut self, name: &'static str) -> &mut Controller {
        if !self.controllers.contains_key(name) {
            let controller = Controller::open(self.server).await;
            self.controllers.insert(name, controller);
        }
        self.controllers.get_mut(name).expect("there")
    }

    async fn send(&mut self, name: &'static str, update: p4::MasterArbitrationUpdate) {
        let controller = self.controller(name).await;
        controller.send(ToSwitch::Arbitration(update)).await;
    }

    /// Expects these notifications, in any order among controllers.
    async fn told(&mut self, expected: &[Told]) {
        let case = self.name;
        for (name, wanted, highest) in expected {
            let controller = self.controllers.get_mut(name).expect("live");
            let update = controller
                .arbitration()
                .await
                .unwrap_or_else(|status| panic!("{case}: {name}: {status:?}"));
            let given = update.election_id;
            assert_eq!(
                (code(&update), given),
                (*wanted, highest.map(election)),
                "{case}: {name}"
            );
            assert_eq!(update.device_id, DEVICE, "{case}: {name}");
        }
    }

    async fn step(&mut self, step: &Step) {
        let case = self.name;
        match step {
            Elect(name, id, expected) => {
                self.send(name, update(None, *id)).await;
                self.told(expected).await;
            }
            InRole(name, role_name, id, expected) => {
                self.send(name, update(role(role_name), *id)).await;
                self.told(expected).await;
            }
            Refused(name, wrong, wanted, expected) => {
                let message = match wrong {
                    Wrong::Id(id) => update(None, Some(*id)),
                    Wrong::Device => p4::MasterArbitrationUpdate {
                        device_id: DEVICE + 1,
                        ..update(None, Some(5))
                    },
                    Wrong::Role(name, id) => update(role(name), Some(*id)),
                    Wrong::Config => update(
                        Some(p4::Role {
                            name: "x".to_owned(),
                            config: Some(prost_types::Any {
                                type_url: "type.googleapis.com/p4.v1.Update".to_owned(),
                                value: Vec::new(),
                            }),
                            ..Default::default()
                        }),
                        Some(6),
                    ),
                    #[allow(deprecated)]
                    Wrong::NumericRole => update(
                        Some(p4::Role {
                            id: 7,
                            ..Default::default()
                        }),
                        Some(5),
                    ),
                };
                self.send(name, message).await;
                let mut gone = self.controllers.remove(name).expect("live");
                let status = gone.receive().await.expect_err(case);
                assert_eq!(status.code(), *wanted, "{case}: {name}: {status:?}");
                self.told(expected).await;
            }
            Leaves(name, expected) => {
                drop(self.controllers.remove(name).expect("live"));
                self.told(expected).await;
            }
            Writes(name, role_name, id, wanted) => {
                let request = p4::WriteRequest {
                    device_id: DEVICE,
                    role: (*role_name).to_owned(),
                    election_id: id.map(election),
                    ..Default::default()
                };
                let result = self.controller(name).await.client.write(request).await;
                let given = match result {
                    // Allowed to write, but there is no program to write to.
                    Err(status) if status.code() == Code::FailedPrecondition => Code::Ok,
                    Err(status) => status.code(),
                    Ok(_) => Code::Ok,
                };
                assert_eq!(given, *wanted, "{case}: {name} writes");
            }
        }
    }

    /// Checks that no controller has another notification: the next message is an error's report.
    async fn quiet(&mut self) {
        for (name, controller) in &mut self.controllers {
            controller
                .requests
                .send(p4::StreamMessageRequest { update: None })
                .await
                .expect("open");
            match controller.receive().await {
                Ok(FromSwitch::Error(_)) => {}
                other => panic!("{}: {name} was told more: {other:?}", self.name),
            }
        }
    }
}

#[tokio::test]
async fn every_case_is_decided_as_the_specification_says() {
    for (name, steps) in CASES {
        let server = Server::with_limits(ServerLimits {
            controllers_per_role: 3,
            ..ServerLimits::default()
        })
        .await;
        let mut case = Case {
            name,
            server: &server,
            controllers: BTreeMap::new(),
        };
        for step in *steps {
            case.step(step).await;
        }
        case.quiet().await;
        drop(case);
        server.stop().await;
    }
    assert!(CASES.len() >= 27);
}
