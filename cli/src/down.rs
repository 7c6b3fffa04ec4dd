// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which SSDs an array lacks, as its daemon says in the metadata of its answers.

use gnstor_daemon::SSD_DOWN;
use gnstor_proto::grpc::ListRequest;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use std::time::Duration;
use tonic::transport::Endpoint;

/// Longest wait for the daemon.
const CALL: Duration = Duration::from_secs(5);

/// An SSD that is down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Down {
    pub(crate) index: u16,
    pub(crate) why: String,
}

/// The SSDs that are down. Nobody is, where the daemon does not say so.
pub(crate) fn ssds(array: &str) -> Vec<Down> {
    ask(array).unwrap_or_else(|error| {
        tracing::debug!("which SSDs are down is not known: {error}");
        Vec::new()
    })
}

fn ask(array: &str) -> Result<Vec<Down>, Box<dyn std::error::Error>> {
    let url = if array.contains("://") { array.to_owned() } else { format!("http://{array}") };
    let endpoint = Endpoint::from_shared(url)?.connect_timeout(CALL).timeout(CALL);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        let mut volumes = VolumesClient::new(endpoint.connect().await?);
        Ok::<_, Box<dyn std::error::Error>>(volumes.list(ListRequest {}).await?)
    })?;
    let values = answer.metadata().get_all(SSD_DOWN).into_iter().filter_map(|value| value.to_str().ok());
    Ok(values.filter_map(parse).collect())
}

fn parse(text: &str) -> Option<Down> {
    let (index, why) = text.split_once(' ')?;
    Some(Down { index: index.parse().ok()?, why: why.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_names_an_ssd_and_a_reason() {
        assert_eq!(parse("3 nobody is there"), Some(Down { index: 3, why: "nobody is there".into() }));
        assert_eq!((parse(""), parse("x y"), parse("70000 y"), parse("1")), (None, None, None, None));
    }
}
