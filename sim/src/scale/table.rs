// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows as comma-separated values.

use super::{Failure, Row};
use std::fmt::Write as _;

const HEAD: &str = "clients,ssds,nodes,replicas,rw,bs,zipf_permille,iodepth,requests,iops,mb_per_s,ssds_iops,wires_iops,\
    share_permille,p50_ns,p99_ns,p999_ns,max_ns,load_permille,steps,trace";

const FAILURE: &str = ",failed_ssd,failed_at_ns,dropped_ns,whole_ns,maps,rebuilt_bytes,pause_ns,before_iops,\
    out_iops,fill_iops,after_iops";

/// The fields of a failure, each with a comma before it.
fn failure(row: &Row) -> String {
    let Some(of) = &row.failure else { return String::new() };
    let or_empty = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    let [dropped, whole] = [of.dropped_ns, of.whole_ns].map(or_empty);
    let rates = [of.before_iops, of.out_iops, of.fill_iops, of.after_iops].map(or_empty).join(",");
    let Failure { ssd, at_ns, maps, rebuilt_bytes, pause_ns, .. } = of;
    format!(",{ssd},{at_ns},{dropped},{whole},{maps},{rebuilt_bytes},{pause_ns},{rates}")
}

/// A line of names, then a line for each row. An empty field means that nothing limits the value, or
/// that it did not come to this in the run. If an SSD fails, there are more fields.
pub fn csv(rows: &[Row]) -> String {
    let fails = if rows.iter().any(|row| row.failure.is_some()) { FAILURE } else { "" };
    let mut text = format!("{HEAD}{fails}\n");
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
             {p50_ns},{p99_ns},{p999_ns},{max_ns},{load_permille},{steps},{trace}{}",
            failure(row)
        );
    }
    text
}
