// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor-hostile [--as INSIDER] [--tls CA CERT KEY] [--ssds N,N] ADDRESS SECONDS SEED [ATTACK]`: attacks
//! the array that listens at the address, and these of its SSDs (without the option, SSD 0). With an insider
//! (`CLIENT,VOLUME,BLOCKS,LEASE_EPOCH,MAP_EPOCH`) it also attacks as a client with rights. Where the array
//! asks for proofs, `,REGISTRATION,SECRET` follows. With `--tls CA CERT KEY` all of it goes by TLS.
//! `gnstor-hostile record ADDRESS FILE`: writes a conversation that keeps the rules as a corpus file.
//! `gnstor-hostile http2 ADDRESS SECONDS [FLOOD]`: floods the daemon at the address with frames of HTTP/2.
//! `gnstor-hostile hold ADDRESS COUNT SECONDS`: keeps this number of connections open and sends nothing.

use gnstor_hostile::attacks::{Attack, run};
use gnstor_hostile::http2;
use gnstor_hostile::line::use_tls;
use gnstor_hostile::mutate::file_of;
use gnstor_hostile::talk::Talk;
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut insider = None;
    if arguments.first().is_some_and(|word| word == "--as") && arguments.len() > 1 {
        let Ok(known) = arguments[1].parse() else {
            return fail("--as CLIENT,VOLUME,BLOCKS,LEASE_EPOCH,MAP_EPOCH[,REGISTRATION,SECRET]");
        };
        insider = Some(known);
        arguments.drain(..2);
    }
    if arguments.first().is_some_and(|word| word == "--tls") && arguments.len() > 3 {
        if let Err(why) = use_tls(&arguments[1], &arguments[2], &arguments[3]) {
            return fail(why);
        }
        arguments.drain(..4);
    }
    let mut ssds = vec![0];
    if arguments.first().is_some_and(|word| word == "--ssds") && arguments.len() > 1 {
        let Ok(known) = arguments[1].split(',').map(str::parse).collect() else {
            return fail("--ssds NUMBER,NUMBER");
        };
        ssds = known;
        arguments.drain(..2);
    }
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["record", address, file] => return record(address, file),
        ["hold", address, count, seconds] => return hold(address, count, seconds),
        ["http2", address, seconds, rest @ ..] => return calls(address, seconds, rest.first()),
        _ => {}
    }
    let (first, only) = arguments.split_at(arguments.len().min(3));
    let parsed = match first {
        [address, seconds, seed] => address.parse().ok().zip(seconds.parse().ok()).zip(seed.parse().ok()),
        _ => None,
    };
    let only = only.first().map(|name| Attack::named(name));
    let (Some(((address, seconds), seed)), Some(only)) =
        (parsed, only.map_or(Some(None), |found| found.map(Some)))
    else {
        eprintln!(
            "gnstor-hostile [--as INSIDER] [--ssds N,N] ADDRESS SECONDS SEED [ATTACK]: attacks the array \
             whose SSDs are reached at ADDRESS"
        );
        return ExitCode::from(2);
    };
    let tally = run(address, &ssds, seed, Duration::from_secs(seconds), only, insider);
    println!(
        "{} frames; {} attacks ended by the array, {} found no queue; {} commands of the insider succeeded; \
         {} games of the insider were won; {} replies to challenges",
        tally.frames,
        tally.ended,
        tally.refused.iter().sum::<u64>(),
        tally.succeeded,
        tally.won,
        tally.challenged
    );
    for ((attack, count), refused) in Attack::ALL.iter().zip(tally.attacks).zip(tally.refused) {
        println!("{count:8} {attack:?}, {refused} found no queue");
    }
    ExitCode::SUCCESS
}

fn fail(why: impl std::fmt::Display) -> ExitCode {
    eprintln!("gnstor-hostile: {why}");
    ExitCode::FAILURE
}

fn record(address: &str, file: &str) -> ExitCode {
    let talk = || -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
        let mut talk = Talk::connect(address.parse()?)?;
        talk.conversation(0)?;
        Ok(talk.sent)
    };
    match talk().and_then(|frames| Ok(std::fs::write(file, file_of(&frames))?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn calls(address: &str, seconds: &str, only: Option<&&str>) -> ExitCode {
    let (Ok(address), Ok(seconds)) = (address.parse(), seconds.parse()) else {
        return fail("http2 ADDRESS SECONDS [FLOOD]");
    };
    let named = |name: &&str| http2::Flood::ALL.into_iter().find(|flood| format!("{flood:?}") == *name);
    let tally = http2::run(address, Duration::from_secs(seconds), only.and_then(named));
    println!("{} frames; the daemon ended {} connections", tally.frames, tally.ended);
    for (flood, frames) in http2::Flood::ALL.iter().zip(tally.of_each) {
        println!("{frames:8} {flood:?}");
    }
    ExitCode::SUCCESS
}

/// Prints a line when all connections are open, and ends after this number of seconds.
fn hold(address: &str, count: &str, seconds: &str) -> ExitCode {
    let parsed = address.parse::<SocketAddr>().ok().zip(count.parse::<usize>().ok());
    let Some(((address, count), seconds)) = parsed.zip(seconds.parse().ok()) else {
        return fail("hold ADDRESS COUNT SECONDS");
    };
    let mut held = Vec::with_capacity(count);
    while held.len() < count {
        match TcpStream::connect(address) {
            Ok(stream) => held.push(stream),
            Err(error) => return fail(format!("{} connections, then: {error}", held.len())),
        }
    }
    println!("{count} connections");
    std::thread::sleep(Duration::from_secs(seconds));
    ExitCode::SUCCESS
}
