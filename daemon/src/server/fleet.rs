// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gRPC service of the fleet: registration of clients, the map, and the operator's calls.

use super::add::named;
use super::clock::unix_seconds;
use super::input::InUse;
use super::repairs;
use super::service::{Answered, NAME_CHARS, Service, mismatch};
use crate::core::failure::Failure;
use crate::core::report::{FleetStatus, SsdView};
use crate::core::request::{self, Request};
use crate::core::{FillReport, MapChange, Reply, Salvageable};
use bytes::Bytes;
use gnstor_proto::grpc;
use gnstor_proto::grpc::fleet_server::Fleet;
use gnstor_proto::grpc::{
    AddRequest, AddResponse, DrainRequest, DrainResponse, FailRequest, FailResponse, FleetSsd, GetMapRequest,
    GetMapResponse, KeepRequest, KeepResponse, LostBlocks, RegisterRequest, RegisterResponse, RemoveRequest,
    RemoveResponse, RepairRequest, RepairResponse, ReplaceRequest, ReplaceResponse, ResumeRequest,
    ResumeResponse, SalvageRequest, SalvageResponse, ShowRequest, ShowResponse, SsdFill, SsdState,
    WatchMapRequest, WatchMapResponse,
};
use gnstor_proto::placement::map3::State3;
use gnstor_proto::status::GrpcCode;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status};

#[tonic::async_trait]
impl Fleet for Service {
    type WatchMapStream = ReceiverStream<Result<WatchMapResponse, Status>>;

    async fn register(&self, call: tonic::Request<RegisterRequest>) -> Answered<RegisterResponse> {
        let name: String = call.get_ref().name.chars().take(NAME_CHARS).collect();
        match self.ask("Register", call, |_| Ok(Request::Register)).await? {
            Reply::Client { client, serial } => {
                tracing::info!(%client, ?name, "a client registered");
                Ok(Response::new(self.registration(client, serial)))
            }
            other => mismatch(&other),
        }
    }

    async fn keep(&self, call: tonic::Request<KeepRequest>) -> Answered<KeepResponse> {
        let keep = |keep: KeepRequest| Ok(Request::Keep { client: request::client_id(keep.client_id)? });
        match self.ask("Keep", call, keep).await? {
            Reply::Done => Ok(Response::new(KeepResponse {})),
            other => mismatch(&other),
        }
    }

    async fn get_map(&self, call: tonic::Request<GetMapRequest>) -> Answered<GetMapResponse> {
        match self.ask("GetMap", call, |_| Ok(Request::GetMap)).await? {
            Reply::Map(map) => {
                // An SSD that is being added is listed before a map names it.
                let ssds = self.ssds().iter().take(named(&map)).cloned().collect();
                Ok(self.with_absent(GetMapResponse { map: Bytes::from_owner(map), ssds }))
            }
            other => mismatch(&other),
        }
    }

    async fn show(&self, call: tonic::Request<ShowRequest>) -> Answered<ShowResponse> {
        match self.ask("Show", call, |_| Ok(Request::Fleet)).await? {
            Reply::Fleet { status, now_ms } => {
                let mut answer = shown(*status, now_ms);
                let listed = self.ssds();
                for ssd in answer.ssds.iter_mut().filter(|ssd| ssd.address.is_empty()) {
                    if let Some(known) = listed.get(ssd.index as usize) {
                        ssd.address.clone_from(&known.address);
                    }
                }
                Ok(Response::new(answer))
            }
            other => mismatch(&other),
        }
    }

    async fn watch_map(&self, call: tonic::Request<WatchMapRequest>) -> Answered<Self::WatchMapStream> {
        let (sender, stream) = mpsc::channel(1);
        let until = Instant::now() + self.stream;
        tokio::spawn(follow(self.maps.clone(), call.into_inner().after_epoch, sender, until));
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn resume(&self, call: tonic::Request<ResumeRequest>) -> Answered<ResumeResponse> {
        let resume = |m: ResumeRequest| Ok(Request::Resume { ssd: index(m.ssd)?, lose_data: m.lose_data });
        let lost = lost(self.ask("Resume", call, resume).await?)?;
        Ok(Response::new(ResumeResponse { lost }))
    }

    async fn fail(&self, call: tonic::Request<FailRequest>) -> Answered<FailResponse> {
        let fail = |m: FailRequest| Ok(Request::Fail { ssd: index(m.ssd)?, lose_data: m.lose_data });
        let lost = lost(self.ask("Fail", call, fail).await?)?;
        Ok(Response::new(FailResponse { lost }))
    }

    async fn remove(&self, call: tonic::Request<RemoveRequest>) -> Answered<RemoveResponse> {
        match self.ask("Remove", call, |m| Ok(Request::Remove { ssd: index(m.ssd)? })).await? {
            Reply::Done => Ok(Response::new(RemoveResponse {})),
            other => mismatch(&other),
        }
    }

    async fn drain(&self, call: tonic::Request<DrainRequest>) -> Answered<DrainResponse> {
        match self.ask("Drain", call, |m| Ok(Request::Drain { ssd: index(m.ssd)? })).await? {
            Reply::Done => Ok(Response::new(DrainResponse {})),
            other => mismatch(&other),
        }
    }

    async fn add(&self, call: tonic::Request<AddRequest>) -> Answered<AddResponse> {
        self.add_ssd(call).await
    }

    async fn replace(&self, call: tonic::Request<ReplaceRequest>) -> Answered<ReplaceResponse> {
        let replace = |m: ReplaceRequest| Ok(Request::Replace { ssd: index(m.ssd)?, lose_data: m.lose_data });
        let lost = lost(self.ask("Replace", call, replace).await?)?;
        Ok(Response::new(ReplaceResponse { lost }))
    }

    async fn salvage(&self, call: tonic::Request<SalvageRequest>) -> Answered<SalvageResponse> {
        let at_s = unix_seconds();
        let salvage = |m: SalvageRequest| Ok(Request::Salvage { dry_run: m.dry_run, at_s });
        match self.ask("Salvage", call, salvage).await? {
            Reply::Salvage(Salvageable { ssds, volumes }) => Ok(Response::new(SalvageResponse {
                ssds: ssds.into_iter().map(u32::from).collect(),
                volumes: lost(Reply::Lost(volumes))?,
            })),
            other => mismatch(&other),
        }
    }

    async fn repair(&self, call: tonic::Request<RepairRequest>) -> Answered<RepairResponse> {
        match self.ask("Repair", call, repairs::request).await? {
            Reply::Repairs(views) => {
                Ok(Response::new(RepairResponse { ssds: views.into_iter().map(repairs::shown).collect() }))
            }
            other => mismatch(&other),
        }
    }
}

/// Sends each map newer than `after`, until the stream's time is over or the client is gone. A slow client
/// gets only the newest map.
async fn follow(
    mut maps: watch::Receiver<Option<InUse>>,
    mut after: u64,
    to: mpsc::Sender<Result<WatchMapResponse, Status>>,
    until: Instant,
) {
    loop {
        let newest = maps.borrow_and_update().clone();
        if let Some((epoch, map)) = newest.filter(|(epoch, _)| *epoch > after) {
            after = epoch;
            let answer = Ok(WatchMapResponse { epoch, map: Bytes::from_owner(map) });
            if !matches!(tokio::time::timeout_at(until, to.send(answer)).await, Ok(Ok(()))) {
                return;
            }
        }
        tokio::select! {
            changed = maps.changed() => if changed.is_err() { return },
            () = to.closed() => return,
            () = tokio::time::sleep_until(until) => return,
        }
    }
}

/// The blocks that a call gives up.
fn lost(reply: Reply) -> Result<Vec<LostBlocks>, Status> {
    let shown = |lost: crate::core::LostBlocks| LostBlocks { volume: lost.volume, blocks: lost.blocks };
    match reply {
        Reply::Done => Ok(Vec::new()),
        Reply::Lost(lost) => Ok(lost.into_iter().map(shown).collect()),
        other => mismatch(&other).map(|_: Response<()>| Vec::new()),
    }
}

/// The index of an SSD.
fn index(raw: u32) -> Result<u16, Failure> {
    let none = || Failure::new(GrpcCode::NotFound, format!("there is no SSD {raw}: see gnstor fleet show"));
    u16::try_from(raw).map_err(|_| none())
}

fn shown(status: FleetStatus, now_ms: u64) -> ShowResponse {
    let (next_epoch, next_waits_for) = status.next.unwrap_or_default();
    ShowResponse {
        array_id: status.array.to_vec(),
        map_format: status.format.into(),
        epoch: status.epoch,
        term: status.term,
        voters: status.voters.into_iter().map(u32::from).collect(),
        groups: status.groups,
        groups_by_copies: status.groups_by_copies,
        replicas: status.replicas.into(),
        next_epoch,
        next_waits_for: next_waits_for.unwrap_or_default(),
        settling_volumes: u32::try_from(status.settles.len()).unwrap_or(u32::MAX),
        fills_paused: status.fills_paused,
        ssds: status.ssds.into_iter().map(|ssd| shown_ssd(ssd, now_ms)).collect(),
        changes: status.changes.into_iter().map(shown_change).collect(),
    }
}

fn shown_ssd(ssd: SsdView, now_ms: u64) -> FleetSsd {
    let state = match ssd.state {
        State3::In => SsdState::In,
        State3::Out => SsdState::Out,
        State3::Spare => SsdState::Spare,
        State3::Absent => SsdState::Absent,
        State3::Full => SsdState::Full,
    };
    FleetSsd {
        index: ssd.index.into(),
        uuid: ssd.uuid.to_vec(),
        address: ssd.address,
        node: ssd.node.into(),
        rack: ssd.rack.into(),
        state: state.into(),
        votes: ssd.votes,
        incarnation: ssd.incarnation,
        shrunk_at: ssd.shrunk_at,
        away: ssd.away.unwrap_or_default(),
        down_ms: ssd.down_since_ms.map(|since| now_ms.saturating_sub(since)),
        drawn_anew_in_ms: ssd.drawn_anew_at_ms.map(|at| at.saturating_sub(now_ms)),
        flaps: ssd.flaps,
        taken_out: ssd.taken_out,
        is_witness: ssd.is_witness,
        serving: ssd.serving,
        filling: ssd.filling,
        fill: ssd.fill.map(shown_fill),
        last_copies: ssd.last_copies,
        is_lossy: ssd.is_lossy,
        leaves: ssd.leaves,
        leave_waits: ssd.leave_waits.unwrap_or_default(),
        share_waits: ssd.share_waits.unwrap_or_default(),
    }
}

fn shown_change(change: MapChange) -> grpc::MapChange {
    grpc::MapChange {
        epoch: change.epoch,
        deprived: change.deprived.iter().map(u32::from).collect(),
        stopped: change.stopped.iter().map(u32::from).collect(),
        waited_ms: change.waited_ms,
    }
}

fn shown_fill(fill: FillReport) -> SsdFill {
    SsdFill {
        compared_blocks: fill.compared,
        blocks: fill.all,
        pulled_blocks: fill.pulled,
        is_filled: fill.is_filled,
        waits_for: fill.waits_for.map(u32::from),
    }
}
