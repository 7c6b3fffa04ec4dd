// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows as comma-separated values.

use super::Row;
use std::fmt::Write as _;

const HEAD: &str = "clients,ssds,nodes,replicas,rw,bs,zipf_permille,iodepth,requests,iops,mb_per_s,ssds_iops,wires_iops,\
    share_permille,p50_ns,p99_ns,p999_ns,max_ns,load_permille,steps,trace\n";

/// A line of names, then a line for each row. An empty field means that nothing limits the value.
pub fn csv(rows: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    for row in rows {
        let or_empty = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
        let rw = format!("{:?}", row.rw).to_lowercase();
        let Row { clients, ssds, nodes, replicas, bs, zipf_permille, iodepth, .. } = row;
        let Row { requests, iops, mb_per_s, .. } = row;
        let Row { p50_ns, p99_ns, p999_ns, max_ns, load_permille, steps, trace, .. } = row;
        let bounds = [row.ssds_iops, row.wires_iops, row.share_permille].map(or_empty).join(",");
        let _ = writeln!(
            text,
            "{clients},{ssds},{nodes},{replicas},{rw},{bs},{zipf_permille},{iodepth},{requests},{iops},{mb_per_s},{bounds},\
             {p50_ns},{p99_ns},{p999_ns},{max_ns},{load_permille},{steps},{trace}"
        );
    }
    text
}
