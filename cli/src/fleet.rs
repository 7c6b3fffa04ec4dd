// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's information about a running array: SSDs, fleet map, volumes.

use crate::args::ArrayArgs;
use gnstor_array::Secret;
use gnstor_console::CliError;
use gnstor_daemon::{Look, NO_AUTH, ROOM, SSD_DAMAGED, SSD_DOWN, SSD_FILLING};
use gnstor_fabric::host_queue::Credentials;
use gnstor_proto::fabrics::{Host, Identity};
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use gnstor_proto::grpc::{
    FleetSsd, GetMapRequest, GetMapResponse, ListRequest, RegisterRequest, RegisterResponse,
};
use gnstor_proto::placement::map3::{State3, Vote};
use gnstor_proto::placement::{AnyMap, Rows};
use gnstor_proto::slba::ClientId;
use libgnstor::Daemons;
use libgnstor::{Error, PAGE, Proof, SignedChannel, SsdInfo, VolumeInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Longest wait for one call: the daemon gives every SSD five seconds.
const CALL: Duration = Duration::from_secs(15);

/// An SSD as the daemon knows it.
#[derive(Clone, Debug)]
pub(crate) struct Ssd {
    /// The daemon's description. The transport is `tcp` if other processes reach the SSD.
    pub(crate) info: SsdInfo,
    /// Why it is down.
    pub(crate) down: Option<String>,
    /// Acknowledged writes may be missing there, so it serves no reads.
    pub(crate) is_lossy: bool,
    /// Places of its metadata could not be read when it started.
    pub(crate) is_damaged: bool,
    /// The map has retired it.
    pub(crate) is_out: bool,
    /// It has the last copy of some blocks, which wait for it.
    pub(crate) is_absent: bool,
    /// It waits for a place in the map.
    pub(crate) is_spare: bool,
    /// The SSD votes, and holds no blocks.
    pub(crate) is_witness: bool,
    /// Number of places in which it takes writes and does not serve reads yet.
    pub(crate) filling: u64,
}

impl Ssd {
    /// Whether it serves no reads.
    pub(crate) fn serves_nothing(&self) -> bool {
        !self.is_witness && (self.down.is_some() || self.is_out || self.is_absent || self.is_lossy)
    }

    /// Whether blocks may be on it now. What an SSD has room for that is away is not known for sure.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_witness && !self.is_out && !self.is_spare && self.down.is_none()
    }

    /// A word for a person and for scripts.
    pub(crate) fn state(&self) -> &'static str {
        match self {
            Self { is_out: true, .. } => "out",
            Self { down: Some(_), .. } => "down",
            Self { is_absent: true, .. } => "absent",
            Self { is_witness: true, .. } => "witness",
            Self { is_lossy: true, .. } => "lossy",
            Self { is_damaged: true, .. } => "degraded",
            Self { filling: 1.., .. } => "filling",
            Self { is_spare: true, .. } => "spare",
            _ => "online",
        }
    }
}

/// A running array.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) ssds: Vec<Ssd>,
    pub(crate) map: AnyMap,
    pub(crate) volumes: Vec<VolumeInfo>,
    /// The largest volume that can be created now, bytes: with one replica, with two, and so on.
    pub(crate) largest: Vec<u64>,
    /// The SSDs ask no host for a proof.
    pub(crate) no_auth: bool,
}

impl Fleet {
    /// Asks the daemon.
    ///
    /// # Errors
    /// It cannot be reached, does not answer, or answers what is no fleet map.
    pub(crate) fn ask(array: &ArrayArgs) -> Result<Self, CliError> {
        let look = ask(array, |channel| async move {
            let fleet = FleetClient::new(channel.clone()).get_map(GetMapRequest {}).await?.into_inner();
            let mut ask = tonic::Request::new(ListRequest { page_size: PAGE, ..ListRequest::default() });
            ask.metadata_mut().insert(ROOM, tonic::metadata::MetadataValue::from_static("1"));
            let mut volumes = VolumesClient::new(channel);
            let mut list = volumes.list(ask).await?;
            loop {
                let page_token = std::mem::take(&mut list.get_mut().next_page_token);
                if page_token.is_empty() {
                    return Ok(Look { map: fleet, list });
                }
                let page = volumes.list(ListRequest { page_size: PAGE, page_token }).await?.into_inner();
                list.get_mut().volumes.extend(page.volumes);
                list.get_mut().next_page_token = page.next_page_token;
            }
        })?;
        Self::of(&look)
    }

    /// Decodes the daemon's answers.
    ///
    /// # Errors
    /// They contain no valid fleet map.
    pub(crate) fn of(Look { map, list }: &Look) -> Result<Self, CliError> {
        let GetMapResponse { map, ssds } = map;
        let map = AnyMap::decode(map).map_err(|e| Error::Protocol(e.to_string()))?;
        let (down, no_auth, largest) = (downs(list), list.metadata().contains_key(NO_AUTH), room(list));
        let (lossy, damaged) = (named(list, SSD_FILLING), named(list, SSD_DAMAGED));
        let filling = filling(&map);
        let ssd = |s: &gnstor_proto::grpc::Ssd| Ssd {
            down: u16::try_from(s.index).ok().and_then(|index| down.get(&index).cloned()),
            is_lossy: u16::try_from(s.index).is_ok_and(|index| lossy.contains(&index)),
            is_damaged: u16::try_from(s.index).is_ok_and(|index| damaged.contains(&index)),
            is_out: u16::try_from(s.index)
                .is_ok_and(|index| map.state(index) == Some(State3::Out) && !is_witness(&map, index)),
            is_absent: u16::try_from(s.index).is_ok_and(|index| map.state(index) == Some(State3::Absent)),
            is_spare: u16::try_from(s.index).is_ok_and(|index| map.state(index) == Some(State3::Spare)),
            is_witness: u16::try_from(s.index).is_ok_and(|index| is_witness(&map, index)),
            filling: filling.get(s.index as usize).copied().unwrap_or(0),
            info: s.clone().into(),
        };
        let ssds = ssds.iter().map(ssd).collect();
        let volumes = list.get_ref().volumes.iter().cloned().map(VolumeInfo::from).collect();
        Ok(Self { ssds, map, volumes, largest, no_auth })
    }

    /// Takes the reasons from the fleet's own list: the daemon names here only members of the map.
    pub(crate) fn why_away(&mut self, shown: &[FleetSsd]) {
        let is_away = |of: &&FleetSsd| of.down_ms.is_some() && !of.taken_out;
        for of in shown.iter().filter(|of| !of.away.is_empty() && is_away(of)) {
            if let Some(ssd) = self.ssds.iter_mut().find(|ssd| ssd.info.index == of.index) {
                ssd.down.get_or_insert_with(|| of.away.clone());
            }
        }
    }

    /// Capacity of the SSDs that are there and may hold blocks, bytes.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.ssds.iter().filter(|ssd| ssd.has_room()).map(|ssd| ssd.info.capacity_bytes).sum()
    }

    /// Least number of copies that serve, of any block of a volume with this many replicas.
    pub(crate) fn copies_left(&self, replicas: u32) -> u32 {
        let serves = |ssd: u16| self.ssds.get(usize::from(ssd)).is_some_and(|ssd| !ssd.serves_nothing());
        let places = usize::try_from(replicas).unwrap_or(usize::MAX).min(self.map.width());
        let is_copy = |group, place: &usize| {
            self.map.place(group, *place).is_some_and(|at| !at.filling && serves(at.ssd))
        };
        let copies = |group: u32| (0..places).filter(|place| is_copy(group, place)).count();
        let fewest = (0..self.map.groups()).map(copies).min().unwrap_or(0);
        u32::try_from(fewest).unwrap_or(u32::MAX)
    }

    /// Whether copies of a block may differ. A write may not be known to be on all of them, or an SSD of the
    /// map that serves nothing may lack later writes.
    pub(crate) fn may_differ(&self, volume: &VolumeInfo) -> bool {
        let is_behind = |ssd: &Ssd| ssd.serves_nothing() && !ssd.is_out;
        volume.replicas > 1 && (volume.unsettled || self.ssds.iter().any(is_behind))
    }

    /// Whether the map has a place that serves for each copy of each volume. The SSD may be down.
    pub(crate) fn has_all_places(&self) -> bool {
        let replicas = self.volumes.iter().map(|v| v.replicas).max().unwrap_or(0);
        let places = usize::try_from(replicas).unwrap_or(usize::MAX).min(self.map.width());
        let serves = |group: u32, place: usize| self.map.place(group, place).is_some_and(|at| !at.filling);
        (0..self.map.groups()).all(|group| (0..places).all(|place| serves(group, place)))
    }

    /// The SSDs that the capacity does not count.
    pub(crate) fn not_counted(&self) -> impl Iterator<Item = &Ssd> {
        self.ssds.iter().filter(|ssd| !ssd.is_witness && !ssd.has_room())
    }

    /// Bytes that the volumes take, all replicas counted.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.volumes.iter().map(taken_bytes).sum()
    }
}

fn is_witness(map: &AnyMap, ssd: u16) -> bool {
    let AnyMap::Three(map) = map else { return false };
    map.ssds.get(usize::from(ssd)).is_some_and(|ssd| ssd.vote == Vote::Witness)
}

/// Bytes that a volume takes, all replicas counted.
pub(crate) fn taken_bytes(volume: &VolumeInfo) -> u64 {
    volume.capacity_bytes.saturating_mul(volume.replicas.into())
}

/// A client for an admin queue.
///
/// # Errors
/// As [`Fleet::ask`].
pub(crate) fn register(array: &ArrayArgs, name: &str) -> Result<Credentials, CliError> {
    let request = RegisterRequest { name: name.into() };
    // An id that was given on a connection that is gone comes back by itself.
    let register = |channel| {
        let request = request.clone();
        async move { FleetClient::new(channel).register(request).await }
    };
    let answer = ask(array, register)?;
    let RegisterResponse { client_id, serial, secret, .. } = answer.into_inner();
    let id = u16::try_from(client_id).ok().and_then(ClientId::new);
    let id = id.ok_or_else(|| Error::Protocol(format!("client id {client_id}")))?;
    let wrong = |e| Error::Protocol(format!("the client's secret: {e}"));
    let secret = (!secret.is_empty()).then(|| Secret::parse(&secret)).transpose().map_err(wrong)?;
    Ok(Credentials { host: Host { serial, ..Host::from(Identity::Client(id)) }, secret })
}

/// The array as the daemon knows it; `None` if it does not answer.
pub(crate) fn known(array: &ArrayArgs) -> Option<Fleet> {
    Fleet::ask(array).inspect_err(|error| tracing::debug!("how the SSDs are is not known: {error}")).ok()
}

/// Makes a call, once.
///
/// # Errors
/// The daemon cannot be reached, does not answer, or refuses.
pub(crate) fn call<T, F>(args: &ArrayArgs, body: impl FnOnce(SignedChannel) -> F) -> Result<T, CliError>
where
    F: Future<Output = Result<T, tonic::Status>>,
{
    let (runtime, caller) = caller(args)?;
    runtime.block_on(caller.call(body)).map_err(|failed| failed.error)
}

/// Makes a call that may be repeated: where its connection is cut, it is made again, within the time of one
/// call.
///
/// # Errors
/// As [`call`].
pub(crate) fn ask<T, F>(args: &ArrayArgs, body: impl Fn(SignedChannel) -> F) -> Result<T, CliError>
where
    F: Future<Output = Result<T, tonic::Status>>,
{
    let (runtime, caller) = caller(args)?;
    let tries =
        async { libgnstor::within(CALL, async || caller.call(&body).await, |failed| failed.was_cut).await };
    let failed = |failed: Option<Failed>| failed.map_or_else(|| silent(caller.array), |failed| failed.error);
    runtime.block_on(tries).map_err(failed)
}

/// A call failed.
struct Failed {
    error: CliError,
    /// The connection was made, and ended before the answer.
    was_cut: bool,
}

/// The way to a daemon.
struct Caller<'a> {
    array: &'a str,
    is_tls: bool,
    daemons: Daemons,
    proof: Proof,
}

fn caller(args: &ArrayArgs) -> Result<(Runtime, Caller<'_>), CliError> {
    let array = args.array.as_str();
    let (daemons, proof) = args.credentials()?.daemons(array)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| CliError::Os { what: "starting the RPC runtime".into(), cause })?;
    Ok((
        runtime,
        Caller { array, is_tls: args.credentials.tls_ca.is_some(), daemons: daemons.timeout(CALL), proof },
    ))
}

impl Caller<'_> {
    async fn call<T, F>(&self, body: impl FnOnce(SignedChannel) -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, tonic::Status>>,
    {
        let unreachable = |e: &(dyn std::error::Error + 'static)| {
            CliError::from(libgnstor::unreachable(self.array, self.is_tls, e))
        };
        let channel = libgnstor::dial(&self.daemons).await;
        let channel = channel.map_err(|e| Failed { error: unreachable(&e), was_cut: false })?;
        body(SignedChannel::new(channel, self.proof.clone())).await.map_err(|status| {
            let takes_over = self.daemons.are_several() && libgnstor::is_no_leader(&status);
            let was_cut = takes_over || libgnstor::was_cut(&status);
            // A status with a source was made on this side: the daemon did not answer.
            let error = match std::error::Error::source(&status) {
                None if status.message() == "Timeout expired" => silent(self.array),
                None => Error::Daemon(status).into(),
                Some(_) if root_cause(&status).contains("imeout expired") => silent(self.array),
                Some(_) => unreachable(&status),
            };
            Failed { error, was_cut }
        })
    }
}

fn silent(array: &str) -> CliError {
    CliError::Stopped(format!(
        "the daemon at {array} did not answer within {} s: see whether its process (gnstor up) is stopped \
         or busy, or name another with --array",
        CALL.as_secs()
    ))
}

fn root_cause(e: &dyn std::error::Error) -> String {
    let mut cause = e;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// The SSDs that the metadata of an answer names as down.
fn downs<T>(answer: &tonic::Response<T>) -> BTreeMap<u16, String> {
    let values = answer.metadata().get_all(SSD_DOWN).into_iter().filter_map(|value| value.to_str().ok());
    values.filter_map(parse).collect()
}

/// The SSDs that the metadata of an answer lists under this name.
fn named<T>(answer: &tonic::Response<T>, name: &str) -> BTreeSet<u16> {
    let values = answer.metadata().get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.filter_map(|value| value.parse().ok()).collect()
}

/// The largest volume for each number of replicas.
fn room<T>(answer: &tonic::Response<T>) -> Vec<u64> {
    let values = answer.metadata().get_all(ROOM).into_iter().filter_map(|value| value.to_str().ok());
    values.filter_map(|value| value.split_once(' ')?.1.parse().ok()).collect()
}

fn parse(text: &str) -> Option<(u16, String)> {
    let (index, why) = text.split_once(' ')?;
    Some((index.parse().ok()?, why.into()))
}

/// Places of each SSD that are being filled.
fn filling(map: &impl Rows) -> Vec<u64> {
    let mut filling = vec![0; map.count()];
    let members = (0..map.groups()).flat_map(|group| map.row(group)).flatten();
    for member in members.filter(|member| member.filling) {
        if let Some(count) = filling.get_mut(usize::from(member.ssd)) {
            *count += 1;
        }
    }
    filling
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use gnstor_proto::placement::FleetMap;

    #[test]
    fn the_metadata_names_an_ssd_and_a_reason() {
        let _deadline = deadline();
        assert_eq!(parse("3 it does not answer"), Some((3, "it does not answer".into())));
        assert_eq!((parse(""), parse("x y"), parse("70000 y"), parse("1")), (None, None, None, None));
    }

    #[test]
    fn places_are_filling_after_a_loss() {
        let _deadline = deadline();
        let map = FleetMap::equal(8, 64, 7, 1).expect("a map");
        assert_eq!(filling(&map), [0; 8]);
        assert!(filling(&map.without(1)).iter().sum::<u64>() > 0);
    }
}
