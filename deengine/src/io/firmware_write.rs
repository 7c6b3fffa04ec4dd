// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes that the firmware carries out, until their data is in frames. [`super::write`] has the rest.

use crate::commands::Accepted;
use crate::commands::{TransferKind, Work, WriteEnd};
use crate::controller::Ssd;
use crate::permission::Authorized;
use crate::request::Request;
use gnstor_ftl::NewBlock;
use gnstor_proto::fabrics::Identity;

impl Ssd {
    pub(super) fn begin_write(
        &mut self,
        command: Accepted,
        identity: Identity,
        request: Authorized<Request>,
    ) {
        let blocks = self.commands.lists.spare_blocks.pop().unwrap_or_default();
        let end = WriteEnd { request, identity, blocks };
        self.pull_write(command, end);
    }

    /// Takes frames for the write's data and pulls it. Without free frames the write waits.
    pub(crate) fn pull_write(&mut self, command: Accepted, mut end: WriteEnd) {
        let Accepted { now, at: accepted, permit } = command;
        let first = *end.request.get();
        let vid = first.address.vid.get();
        assert!(end.blocks.is_empty(), "a write that pulls its data has no frames yet");
        let free = self.ftl().flash().free_frames();
        let may_have = self.commands.shares.allow(first.address.client, first.blocks, free);
        while end.blocks.len() < first.blocks as usize {
            let Some(frame) = may_have.then(|| self.ftl().take_frame()).flatten() else {
                end.blocks.drain(..).for_each(|block| self.ftl().give_frame(block.frame));
                let id = self.start(permit, vid, accepted, Work::Starved(end));
                return self.starve(now, (first.address.client, first.address.vid), id);
            };
            end.blocks.push(NewBlock { frame, sum: 0 });
        }
        let frames = std::mem::take(&mut self.commands.lists.frames);
        let frames = end.blocks.iter().fold(frames, |mut frames, block| {
            frames.push(block.frame);
            frames
        });
        self.commands.shares.take(first.address.client, first.blocks);
        let id = self.start(permit, vid, accepted, Work::Write(end));
        for (index, frame) in (0u32..).zip(&frames) {
            self.pull(id, TransferKind::ToBlock(index), first.remote_of(index), self.ftl().frame(*frame));
        }
        self.commands.lists.frames = frames;
        self.commands.lists.frames.clear();
    }
}
