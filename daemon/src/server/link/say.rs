// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that a link sends to its SSD: those of the core, and one question of its own.

use crate::core::Answer;
use crate::port::Talk;
use gnstor_fabric::admin::{Ask, ChannelError, Data, Dialogue, Reply};
use gnstor_proto::log_page::{self, FLASH_DAMAGED, FLASH_FILLING, FLASH_MAGIC, FlashPage};
use gnstor_proto::status::Status;
use zerocopy::FromBytes;

#[derive(Debug)]
pub(super) enum Say {
    /// A command of the core's.
    Command(Talk),
    /// Asks for the SSD's condition.
    Look,
}

/// The condition that an SSD reports while it serves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Condition {
    /// Acknowledged writes may be missing, so that it serves no reads.
    pub is_filling: bool,
    /// Places of its permission metadata could not be read when it started.
    pub is_damaged: bool,
}

pub(super) enum Said {
    /// An answer that is for the core.
    Answer(Answer),
    /// `None`: the SSD does not say.
    Condition(Option<Condition>),
    /// The question was not answered.
    Unheard,
}

impl Dialogue for Say {
    type Answer = Said;

    fn order(&self) -> Option<u64> {
        match self {
            Self::Command(talk) => talk.order(),
            Self::Look => None,
        }
    }

    fn ask(&self) -> Ask {
        match self {
            Self::Command(talk) => talk.ask(),
            Self::Look => {
                let bytes = size_of::<FlashPage>();
                let sqe = log_page::get_log(log_page::FLASH, u32::try_from(bytes).expect("a small page"));
                Ask { sqe, data: Data::In(bytes) }
            }
        }
    }

    fn replied(&mut self, reply: Reply) -> Option<Said> {
        match self {
            Self::Command(talk) => talk.replied(reply).map(Said::Answer),
            Self::Look => {
                let page = FlashPage::read_from_bytes(&reply.data).ok();
                let is_success = Status(reply.cqe.status_word()).is_success();
                let page = page.filter(|page| is_success && page.magic == FLASH_MAGIC);
                let condition = |page: FlashPage| Condition {
                    is_filling: page.flags.get() & FLASH_FILLING != 0,
                    is_damaged: page.flags.get() & FLASH_DAMAGED != 0,
                };
                Some(Said::Condition(page.map(condition)))
            }
        }
    }

    fn lost(&mut self, error: &ChannelError) -> Said {
        match self {
            Self::Command(talk) => Said::Answer(talk.lost(error)),
            Self::Look => Said::Unheard,
        }
    }
}
