// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of SSD processes: faults, presets and shared memory. One test has an SSD that is still
//! recovering.

use gnstor_base::region::HostRegion;
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::{HostQueue, SsdPath};
use gnstor_fabric::runtime::{TransportHandle, TransportThreads};
use gnstor_fabric::tcp::Wire;
use gnstor_fabric::transport::{ExecutorId, Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::{Identity, ssd_subnqn};
use gnstor_tests::command::{BUILD_LIMIT, Running, SsdProcess, Up, gnstor};
use gnstor_tests::folder::Folder;
use gnstor_tests::{assert_same, pattern, within};
use std::os::unix::fs::FileExt;
use std::time::Duration;

const ANY: &str = "127.0.0.1:0";
const SMALL: [&str; 4] = ["--preset", "null", "--size", "64MiB"];

/// Writes a file into a volume of an array of one SSD with these arguments.
fn stored(up: &Up, input: &str) -> (String, Vec<u8>) {
    let data = pattern(4, 400_000);
    std::fs::write(input, &data).expect("a file can be written");
    up.cp(&[input, "gn://v", "--replicas", "1"]).worked();
    (format!("{input}.out"), data)
}

#[test]
fn faults_that_are_asked_for_happen_in_a_process_and_in_an_embedded_ssd() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
        let (file, input) = (path("it.gns"), path("in"));
        // The SSD reads blocks in the write buffer from there. After a restart the buffer is empty, so reads
        // reach flash.
        let ssd = |extra: &[&str]| SsdProcess::start(ANY, &[&["--data", &file][..], extra].concat());
        let first = ssd(&SMALL);
        let up = Up::start_as(&["--ssd-at", &first.address()]);
        let (out, data) = stored(&up, &input);
        up.end("-TERM");
        first.end("-TERM");
        let check = |set: &[&str], changed: &[&str], errors: Option<&[&str]>| {
            let ssd = ssd(set);
            let summary: Vec<&str> = ssd.serving["changed"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|line| line.as_str())
                .collect();
            assert_eq!(summary, changed);
            let up = Up::start_as(&["--ssd-at", &ssd.address()]);
            let copied = up.cp(&["gn://v", &out]);
            match errors {
                Some(words) => copied.failed(words),
                None => {
                    copied.worked();
                    assert_same("without faults", &std::fs::read(&out).expect("it was copied"), &data);
                }
            }
            up.end("-TERM");
            ssd.end("-TERM");
        };
        check(&["--set", "faults.read_errors=1"], &["faults.read_errors = 1.0"], Some(&["cannot be read"]));
        // The fault stays until another setting replaces it.
        check(&[], &["faults.read_errors = 1.0"], Some(&["cannot be read"]));
        check(&["--set", "faults.read_errors=0"], &[], None);
        check(&["--set", "faults.bit_rot=1"], &["faults.bit_rot = 1.0"], Some(&["damaged"]));
        // Data that has rotted stays damaged.
        check(&["--set", "faults.bit_rot=0"], &[], Some(&["damaged"]));

        let array = path("array");
        let up = Up::start(&["--ssds", "1", "--data", &array, "--set", "collection.policy=cost-benefit"]);
        let (out, _) = stored(&up, &input);
        up.end("-TERM");
        let up = Up::start_as(&["--data", &array, "--set", "faults.read_errors=1"]);
        let summary = &up.serving["ssd_list"][0]["here"]["changed"];
        assert_eq!(
            summary,
            &serde_json::json!(["collection.policy = \"cost-benefit\"", "faults.read_errors = 1.0"])
        );
        up.cp(&["gn://v", &out]).failed(&["cannot be read"]);
        up.end("-TERM");
        gnstor(&["ssd", "--listen", ANY, "--set", "faults.red_errors=1"])
            .failed(&["faults.red_errors=1", "unknown field"]);
        gnstor(&["ssd", "--listen", ANY, "--set", "rows=0"]).failed(&["--set", "rows = 0"]);
        gnstor(&["ssd", "--retime"]).not_understood(&["--data"]);
    });
}

#[test]
fn a_preset_of_ones_own_is_kept_in_the_file() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
        let (file, preset) = (path("it.gns"), path("my.toml"));
        let write = |extra: &str| {
            let text = format!("name = \"mine\"\nbase = \"null\"\n{extra}\n");
            std::fs::write(&preset, text).expect("a file can be written");
        };
        write("buffer_pages = 400");
        let first = SsdProcess::start(ANY, &["--data", &file, "--preset", &preset, "--size", "64MiB"]);
        assert_eq!(first.serving["preset"], "mine");
        first.end("-TERM");
        let again = SsdProcess::start(ANY, &["--data", &file]);
        assert_eq!((again.came_up(), &again.serving["preset"]), ("clean", &"mine".into()));
        again.end("-TERM");
        let ssd = |extra: &[&str]| gnstor(&[&["ssd", "--listen", ANY, "--data", &file], extra].concat());
        write("buffer_pages = 500");
        ssd(&["--preset", &preset]).failed(&[&file, "buffer_pages = 400, not 500"]);
        ssd(&["--preset", &preset, "--retime"]).failed(&[&file, "buffer_pages = 400, not 500"]);
        ssd(&["--set", "rows=17"]).failed(&[&file, "rows = ", "not 17"]);
        write("buffer_pages = 400\npower_protected = false");
        ssd(&["--preset", &preset]).failed(&[&file, "power_protected = true, not false", "--retime"]);
        SsdProcess::start(ANY, &["--data", &file, "--preset", &preset, "--retime"]).end("-TERM");
        SsdProcess::start(ANY, &["--data", &file, "--preset", &preset]).end("-TERM");
    });
}

#[test]
fn another_process_can_map_the_pages_of_an_ssd_in_shared_memory() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let input = folder.path().join("in").to_str().expect("a plain path").to_owned();
        let ssd = SsdProcess::start(ANY, &[&SMALL[..], &["--shared-memory"]].concat());
        let memory = ssd.serving["memory"].as_str().expect("a path").to_owned();
        let up = Up::start_as(&["--ssd-at", &ssd.address()]);
        let (_, data) = stored(&up, &input);
        // This process maps the same memory. It sees every whole block that a client wrote.
        let file = std::fs::File::options().read(true).write(true).open(&memory).expect("it can be opened");
        let bytes = usize::try_from(file.metadata().expect("its size").len()).expect("64-bit host");
        let region = HostRegion::map_file(&file, 0, bytes).expect("it can be mapped");
        let mut pages = vec![0; bytes];
        region.read(0, &mut pages);
        let held: std::collections::HashSet<&[u8]> = pages.chunks_exact(4096).collect();
        let blocks = data.chunks_exact(4096);
        assert!(
            blocks.len() > 90 && blocks.clone().all(|block| held.contains(block)),
            "a block is not there"
        );
        up.end("-TERM");
        ssd.end("-TERM");
        let private = SsdProcess::start(ANY, &SMALL);
        assert_eq!(private.serving["memory"], serde_json::Value::Null);
    });
}

/// Connects to the SSD with this index, as a daemon does.
fn connect(engine: &TransportHandle, soft: ExecutorId, address: &str) -> Result<HostQueue, ChannelError> {
    let broken = |cause: String| ChannelError::Broken { peer: address.into(), cause };
    let wire =
        std::net::TcpStream::connect(address).and_then(Wire::new).map_err(|e| broken(e.to_string()))?;
    let link = engine.call(move |e, _| e.add_remote(wire)).expect("the engine runs").expect("a link");
    let port = Port::Remote { remote: link, ssd: 0 };
    let second = Duration::from_secs(1);
    let queue = HostQueue::connect(
        &SsdPath { transport: engine, executor: soft, port, subnqn: &ssd_subnqn(0) },
        Identity::Daemon,
        Duration::ZERO,
        second,
    );
    if queue.is_err() {
        engine.cast(move |e, now| e.remove_remote(now, link));
    }
    queue
}

#[test]
fn an_ssd_that_rebuilds_its_map_says_that_it_is_not_ready_until_it_is() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let file = folder.path().join("it.gns").to_str().expect("a plain path").to_owned();
        let args = ["--data", &file, "--preset", "null", "--size", "8GiB", "--sparse"];
        let first = SsdProcess::start(ANY, &args);
        let address = first.address();
        first.end("-TERM");
        // Removes journal and checkpoints. The SSD must then read two million records and write its map anew.
        let raw = std::fs::File::options().read(true).write(true).open(&file).expect("it is there");
        let mut end = [0; 8];
        raw.read_exact_at(&mut end, 48).expect("a header");
        let ring =
            (64 << 10) + 24_576 + (2 << 20) + 2 * 8192 * 4096 + 2 * 512 * 65_536 + 2 * 4096 + (64 << 20);
        let zeros = vec![0; 1 << 20];
        let end = u64::from_le_bytes(end);
        for at in (ring..end).step_by(zeros.len()) {
            let bytes = usize::try_from(end - at).expect("64-bit host").min(zeros.len());
            raw.write_all_at(&zeros[..bytes], at).expect("it is written");
        }
        let engine =
            TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]).expect("a thread");
        let handle = engine.handle();
        let soft = handle.call(|e, _| e.add_soft()).expect("the engine runs");
        let running = Running::start(&["ssd", "--json", "--listen", &address, "--data", &file]);
        let (mut not_ready, mut others) = (0, Vec::new());
        let queue = loop {
            match connect(&handle, soft, &address) {
                Ok(queue) => break queue,
                Err(ChannelError::NotReady { .. }) => not_ready += 1,
                // No SSD listens yet, or the connection was the recovering SSD's last one.
                Err(other) => others.push(other.to_string()),
            }
            assert!(others.len() < 5000, "{:?}", &others[others.len() - 3..]);
            std::thread::sleep(Duration::from_millis(2));
        };
        assert!(not_ready > 0, "it never refused: {others:?}");
        assert!(!others.iter().any(|why| why.contains("did not answer")), "no client hangs: {others:?}");
        assert_eq!(running.object()["came_up"], "lossy");
        drop(queue);
        // An array waits for an SSD that recovers.
        drop((engine, running));
        let again = Running::start(&["ssd", "--json", "--listen", &address, "--data", &file]);
        let up = Up::start_as(&["--ssd-at", &address]);
        up.end("-TERM");
        drop(again);
    });
}
