//! The service `pacer.v1.PacketTracing`: traces of packets that come in, and dry runs.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use switch::trace::{
    FilterError, Instruction, PacketFilter, PacketTrace, TooManyWatches, WatchId, WatchOptions,
};
use switch::{DryRun, DryRunError, Switch};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::executor::{self, ExecuteError};
use crate::intake::caller;
use crate::proto::pacer::v1 as pacer;
use crate::refusals::Refusal;
use crate::shared::Shared;
use crate::standing::{Client, Standing, refused_beside_holders};

/// Most packets that one watch traces.
const COUNT_MAX: u64 = 1_000_000;

/// Traces that may wait for their client.
const WAITING_MAX: usize = 256;

/// Time after which a job that ends a watch is tried again if the executor has no room for it.
const RETRY: Duration = Duration::from_millis(10);

/// The gRPC service.
pub(crate) struct PacketTracingService {
    shared: Arc<Shared>,
}

impl PacketTracingService {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Checks that a client may trace packets. Traces show what others send, and take time of the thread
    /// that paces: a filter runs for each packet that comes in.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`: a stranger, beside a holder.
    fn check(&self, client: Client) -> Result<(), Status> {
        if self.shared.may_act(client.standing) {
            return Ok(());
        }
        self.shared.refusals.count(Refusal::TraceOfStranger);
        Err(refusal())
    }
}

fn refusal() -> Status {
    refused_beside_holders("trace packets")
}

/// Ends a stranger's watch when the first holder comes, whether or not its client takes the traces.
async fn end_beside_holder(shared: Arc<Shared>, watch: WatchId) {
    let mut has_holder = shared.has_holder.subscribe();
    // The sender belongs to `shared`, so it cannot be gone.
    let _ = has_holder.wait_for(|has_holder| *has_holder).await;
    shared.refusals.count(Refusal::TraceOfStranger);
    let unwatch = || executor::once(move |switch| switch.unwatch(watch));
    while shared.executor.execute(unwatch()) == Err(ExecuteError::Busy) {
        tokio::time::sleep(RETRY).await;
    }
}

/// The traces of a watch. The watch ends when this is dropped.
pub(crate) struct Traces {
    receiver: mpsc::Receiver<(PacketTrace, u64)>,
    /// Traces until the watch ends.
    left: u64,
    watch: WatchId,
    /// Ends a stranger's watch.
    ending: Option<AbortHandle>,
    client: Client,
    shared: Arc<Shared>,
}

impl Stream for Traces {
    type Item = Result<pacer::WatchResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        this.receiver.poll_recv(context).map(|received| {
            let Some((trace, skipped)) = received else {
                // The switch has ended the watch, or ends itself.
                this.left = 0;
                let may_go_on = this.shared.may_act(this.client.standing);
                return (!may_go_on).then(|| Err(refusal()));
            };
            this.left -= 1;
            Some(Ok(pacer::WatchResponse {
                trace: Some((&trace).into()),
                skipped,
            }))
        })
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Some(ending) = &self.ending {
            ending.abort();
        }
        let watch = self.watch;
        // A switch that takes no more jobs ends the watch at its next packet, which finds no client.
        let _ = self
            .shared
            .executor
            .execute(executor::once(move |switch| switch.unwatch(watch)));
    }
}

#[tonic::async_trait]
impl pacer::packet_tracing_server::PacketTracing for PacketTracingService {
    type WatchStream = Traces;

    async fn watch(
        &self,
        request: Request<pacer::WatchRequest>,
    ) -> Result<Response<Traces>, Status> {
        let client = caller(&request)?.client;
        self.check(client)?;
        let request = request.into_inner();
        let options = options(&request)?;
        let left = options.count;
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        // Traces that the client is too slow for are lost, and count as skipped.
        let mut lost = 0;
        let receive = move |trace, skipped| match sender.try_send((trace, skipped + lost)) {
            Ok(()) => {
                lost = 0;
                true
            }
            Err(mpsc::error::TrySendError::Full(_)) => {
                lost += skipped + 1;
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        };
        let watch = executor::with(&*self.shared.executor, move |switch| {
            check_port(switch, request.port)?;
            switch
                .watch(options, Box::new(receive))
                .map_err(|error: TooManyWatches| Status::resource_exhausted(error.to_string()))
        })
        .await??;
        let ending = (client.standing == Standing::Stranger).then(|| {
            let ending = end_beside_holder(Arc::clone(&self.shared), watch);
            tokio::spawn(ending).abort_handle()
        });
        Ok(Response::new(Traces {
            receiver,
            left,
            watch,
            ending,
            client,
            shared: Arc::clone(&self.shared),
        }))
    }

    async fn dry_run(
        &self,
        request: Request<pacer::DryRunRequest>,
    ) -> Result<Response<pacer::DryRunResponse>, Status> {
        self.check(caller(&request)?.client)?;
        let pacer::DryRunRequest { port, frame } = request.into_inner();
        let number = port_number(port)?;
        let mut run = Some(DryRun::new(number, frame));
        let (trace, _run) = executor::reading_in_visits(&*self.shared.executor, move |visit| {
            let (switch, over) = visit.split();
            let ended = run.as_mut()?.go_on(switch, over)?;
            // The server's thread frees its memory.
            Some((ended, run.take()))
        })
        .await?;
        let trace = trace.map_err(refused)?;
        Ok(Response::new(pacer::DryRunResponse {
            trace: Some((&trace).into()),
        }))
    }
}

fn refused(error: DryRunError) -> Status {
    let text = error.to_string();
    match error {
        DryRunError::NoProgram => Status::failed_precondition(text),
        DryRunError::NoSuchPort(_) => Status::not_found(text),
        DryRunError::Oversize(..) | DryRunError::PauseFrame => {
            Status::invalid_argument(format!("frame: {text}"))
        }
        DryRunError::ProgramReplaced => Status::aborted(text),
    }
}

fn port_number(port: u32) -> Result<u16, Status> {
    u16::try_from(port).map_err(|_| no_such_port(port))
}

fn no_such_port(port: u32) -> Status {
    Status::not_found(format!("the switch has no port {port}"))
}

fn check_port(switch: &Switch, port: Option<u32>) -> Result<(), Status> {
    let Some(port) = port else {
        return Ok(());
    };
    let number = port_number(port)?;
    match switch.traffic_manager().port_config(number) {
        Some(_) => Ok(()),
        None => Err(no_such_port(port)),
    }
}

fn options(request: &pacer::WatchRequest) -> Result<WatchOptions, Status> {
    if !(1..=COUNT_MAX).contains(&request.count) {
        return Err(Status::invalid_argument(format!(
            "count: {} given, 1 to {COUNT_MAX} expected",
            request.count
        )));
    }
    Ok(WatchOptions {
        port: request.port.map(port_number).transpose()?,
        filter: filter(&request.filter)?,
        count: request.count,
    })
}

/// The filter of a request; `None`: it has none.
fn filter(instructions: &[pacer::FilterInstruction]) -> Result<Option<PacketFilter>, Status> {
    if instructions.is_empty() {
        return Ok(None);
    }
    let wrong = |error: FilterError| Status::invalid_argument(format!("filter: {error}"));
    let instructions: Result<Vec<_>, _> = instructions.iter().map(instruction).collect();
    PacketFilter::new(&instructions?).map(Some).map_err(wrong)
}

fn instruction(message: &pacer::FilterInstruction) -> Result<Instruction, Status> {
    let (Ok(code), Ok(jump_true), Ok(jump_false)) = (
        message.code.try_into(),
        message.jump_true.try_into(),
        message.jump_false.try_into(),
    ) else {
        return Err(Status::invalid_argument(
            "filter: an instruction has a code of 16 bits and jumps of 8 bits",
        ));
    };
    Ok(Instruction {
        code,
        jump_true,
        jump_false,
        k: message.k,
    })
}
