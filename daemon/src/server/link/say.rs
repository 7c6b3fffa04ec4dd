// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that a link sends to its SSD: those of the core, and questions of its own.

use crate::core::Answer;
use crate::openings::{Opened, Uuid};
use crate::port::{Talk, refusal};
use gnstor_fabric::admin::{Ask, ChannelError, Data, Dialogue, Reply};
use gnstor_proto::log_page::{self, FLASH_DAMAGED, FLASH_FILLING, FLASH_MAGIC, FlashPage};
use gnstor_proto::ssd_identity::KnownOpening;
use gnstor_proto::status::{Refusal, Status};
use zerocopy::FromBytes;

#[derive(Debug)]
pub(super) enum Say {
    /// A command of the core's.
    Command(Talk),
    /// Asks for the SSD's condition.
    Look,
    /// Asks who the SSD is.
    Who(Talk),
    /// Says which number of openings the daemon knows.
    Opening(KnownOpening),
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
    /// The SSD's uuid; `None`: it states none.
    Who(Option<Uuid>),
    /// How often the SSD says that it was opened, and the number that it was told. `Err`: it does not say so
    /// now.
    Opening(Result<Opened, Option<Refusal>>, u32),
    /// The question was not answered.
    Unheard,
    /// A question about openings was not answered.
    NotOpened,
}

impl Dialogue for Say {
    type Answer = Said;

    fn order(&self) -> Option<u64> {
        match self {
            Self::Command(talk) => talk.order(),
            Self::Look | Self::Who(_) | Self::Opening(_) => None,
        }
    }

    fn ask(&self) -> Ask {
        match self {
            Self::Command(talk) | Self::Who(talk) => talk.ask(),
            Self::Opening(known) => Ask { sqe: known.command(), data: Data::None },
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
            Self::Who(talk) => talk.replied(reply).map(|answer| match answer {
                Answer::Says(says) => Said::Who(says.map(|says| says.uuid)),
                _ => Said::NotOpened,
            }),
            Self::Opening(KnownOpening(known)) => {
                let is_success = Status(reply.cqe.status_word()).is_success();
                let (number, start) = (reply.cqe.dw0.get(), reply.cqe.dw1.get());
                let says = if is_success { Ok(Opened { number, start }) } else { Err(refusal(&reply.cqe)) };
                Some(Said::Opening(says, *known))
            }
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
            Self::Who(_) | Self::Opening(_) => Said::NotOpened,
        }
    }
}
