// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a daemon reaches and inspects SSDs that join after its start.

use super::{SsdPort, Talk};
use crate::core::{Answer, Command, Found};
use gnstor_fabric::admin::{AdminChannel, Ask, ChannelError, Data, Dialogue as _, Payload, Reply};
use gnstor_proto::placement::AnyMap;
use gnstor_proto::slba::Vid;
use std::fmt::Debug;
use std::time::Duration;

/// Longest wait for one command of [`look`].
const DEADLINE: Duration = Duration::from_secs(5);

/// The way to SSDs in processes of their own.
pub trait Connector: Debug + Send + Sync {
    /// Connects once. It may block, and returns within seconds.
    ///
    /// # Errors
    /// No SSD of that number answers there, or one of the two ends is not proven.
    fn connect(&self, index: u16, address: &str) -> Result<Box<dyn AdminChannel>, ChannelError>;

    /// The port of an SSD that is connected later. Until then its capacity counts as `bytes`.
    fn port(&self, index: u16, address: &str, bytes: u64) -> SsdPort;
}

/// Asks an SSD for its identity and content. `ssd` is the number under which the connection was made.
///
/// # Errors
/// A sentence: the SSD does not answer, or sends an unexpected answer.
pub fn look(ssd: u16, queue: &mut dyn AdminChannel) -> Result<Found, String> {
    let says = match ask(queue, Command::Identify)? {
        Answer::Says(says) => says,
        other => return Err(unexpected(&other)),
    };
    let array = match ask(queue, Command::MapGet)? {
        Answer::Map(None) => None,
        Answer::Map(Some(AnyMap::Three(map))) => Some(map.array),
        Answer::Map(Some(AnyMap::Two(_))) => Some([0; 16]),
        other => return Err(unexpected(&other)),
    };
    let volume = match ask(queue, Command::List { from: Vid::MIN })? {
        Answer::Table { entries, .. } => entries.into_iter().next().map(|entry| entry.name),
        other => return Err(unexpected(&other)),
    };
    Ok(Found { ssd, says, array, volume })
}

fn unexpected(answer: &Answer) -> String {
    match answer {
        Answer::Refused(refusal) => refusal.sentence().into(),
        Answer::Lost(why) => why.clone(),
        _ => "it answered another command".into(),
    }
}

/// Has an SSD execute a command, and waits.
fn ask(queue: &mut dyn AdminChannel, command: Command) -> Result<Answer, String> {
    let mut talk = Talk::start(command).map_err(|answer| unexpected(&answer))?;
    loop {
        let Ask { sqe, data } = talk.ask();
        let mut brought = vec![0; if let Data::In(bytes) = data { bytes } else { 0 }];
        let payload = match &data {
            Data::None => Payload::None,
            Data::Out(data) => Payload::Out(data),
            Data::In(_) => Payload::In(&mut brought),
        };
        let cqe = queue.execute(sqe, payload, DEADLINE).map_err(|error| error.to_string())?;
        if let Some(answer) = talk.replied(Reply { cqe, data: brought }) {
            return Ok(answer);
        }
    }
}
