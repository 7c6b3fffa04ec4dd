// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One table: the reason of a refusal -> NVMe status -> errno -> gRPC code -> a sentence.
//!
//! Every refusal has its own number, which DW0 of the completion carries. So a reader of the completion (a
//! GPU thread, the daemon, a person with a trace) can name the rule and not only the status.

use crate::slba::Vid;

/// An NVMe status without the phase bit: SC in 7:0, SCT in 10:8, CRD in 12:11, More in 13, DNR in 14.
///
/// It is an open newtype, since a value from the wire may be any.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    /// Success.
    pub const SUCCESS: Self = Self(0);
    /// Command aborted: the queue was deleted or the controller reset.
    pub const ABORTED: Self = Self(0x0008);
    /// Do not retry.
    pub const DNR: u16 = 0x4000;

    /// No error.
    pub fn is_success(self) -> bool {
        self.0 & 0x7FF == 0
    }

    /// A retry of the same command cannot succeed.
    pub fn do_not_retry(self) -> bool {
        self.0 & Self::DNR != 0
    }
}

impl core::fmt::Debug for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:04x}h", self.0)
    }
}

impl core::fmt::Display for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:04x}h", self.0)
    }
}

/// How the message of UNAVAILABLE begins where a daemon has not ended its start.
pub const NOT_SERVING_YET: &str = "the daemon is not serving yet";

/// How the message of a daemon begins that another one has replaced.
pub const DEPOSED: &str = "a newer daemon has taken over the array";

/// gRPC codes used in the table, by their numbers in the gRPC specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "names of the gRPC specification")]
pub enum GrpcCode {
    InvalidArgument = 3,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

macro_rules! refusals {
    ($(
        $(#[$doc:meta])*
        $name:ident =
            $code:literal, $status:literal, $errno:literal, $grpc:ident, $rule:literal, $sentence:literal;
    )*) => {
        /// Why an SSD refused a command. The number is stable and travels in DW0.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Refusal { $($(#[$doc])* $name = $code,)* }

        impl Refusal {
            /// Every refusal, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The NVMe status.
            pub const fn status(self) -> Status {
                match self { $(Self::$name => Status($status),)* }
            }

            /// The POSIX error number (Linux values).
            pub const fn errno(self) -> i32 {
                match self { $(Self::$name => $errno,)* }
            }

            /// The gRPC code.
            pub const fn grpc(self) -> GrpcCode {
                match self { $(Self::$name => GrpcCode::$grpc,)* }
            }

            /// The rule that the command broke, as `docs/protocol.md` numbers them; `NVMe` if the
            /// specification has the rule.
            pub const fn rule(self) -> &'static str {
                match self { $(Self::$name => $rule,)* }
            }

            /// A sentence for a person that says what is wrong.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }

            /// The refusal with this number; `None` if this version does not know the number.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
        }
    };
}

refusals! {
    /// The volume is not in this SSD's permission table.
    UnknownVolume = 1, 0x4286, 13, NotFound, "access: volume", "no such volume on this SSD";
    /// The client is not among the volume's readers.
    NotAReader = 2, 0x4286, 13, PermissionDenied, "access: readers", "this client has not opened the volume";
    /// The client may read but does not hold the write lease.
    ReadOnly = 3, 0x4182, 30, PermissionDenied, "access: writer",
        "this client opened the volume for reading only";
    /// Another client holds the write lease.
    LeaseHeldByOther = 4, 0x4083, 16, FailedPrecondition, "8 (fencing)",
        "another client holds the write lease";
    /// The client's own write lease has run out or belongs to an older epoch.
    LeaseExpired = 5, 0x0083, 11, FailedPrecondition, "8 (fencing)",
        "the write lease has expired; renew it and submit again";
    /// The client id in the command is not the connection's.
    WrongIdentity = 6, 0x4286, 1, PermissionDenied, "4 (identity)",
        "the client id of the command is not the connection's";
    /// The connection's identity may not use this command.
    NotTheDaemon = 7, 0x4286, 1, PermissionDenied, "4 (identity)", "only the daemon may use this command";
    /// This SSD does not hold the block under the map that both sides know.
    WrongTarget = 8, 0x4701, 6, Internal, "placement", "the block does not belong to this SSD";
    /// The client placed the command by an older map than the SSD has.
    StaleMap = 9, 0x0702, 116, Aborted, "1 (map epoch)", "the client's fleet map is out of date";
    /// The client placed the command by a newer map than the SSD has.
    MapBehind = 10, 0x0703, 11, Unavailable, "1 (map epoch)",
        "this SSD has not got the client's fleet map yet";
    /// The SSD is filling for this placement group.
    NotHereYet = 11, 0x0704, 11, Unavailable, "1 (serving and filling)",
        "this replica is still being filled; read another";
    /// While the volume has a writer, a reader must ask the first serving SSD.
    AskTheFirst = 12, 0x0705, 11, Unavailable, "7 (readers beside a writer)",
        "a writer is active; read the first serving SSD";
    /// The SSD has no map, or its serving lease has run out.
    NotServing = 13, 0x0706, 11, Unavailable, "2 (serving lease)", "this SSD is not serving";
    /// The block is beyond the volume's capacity.
    OutOfRange = 14, 0x4080, 22, OutOfRange, "NVMe", "the range ends beyond the volume";
    /// No free pages.
    CapacityExceeded = 15, 0x4081, 28, ResourceExhausted, "NVMe", "the SSD is full";
    /// The SSD is recovering after a power loss. CRD 1: try again after CRDT1 of Identify Controller.
    NotReady = 16, 0x0882, 11, Unavailable, "11 (power)", "the SSD is recovering";
    /// The key stored beside the page does not match the map: an internal error.
    WrongKey = 17, 0x0281, 5, Internal, "10 (deletion)", "internal error: the page holds another block";
    /// The page's checksum does not match its data.
    BadChecksum = 18, 0x0281, 5, Internal, "checksum", "the data of the page is damaged";
    /// The volume is being deleted.
    Deleting = 19, 0x4286, 13, NotFound, "10 (deletion)", "the volume is being deleted";
    /// A field of the command is not valid.
    InvalidField = 20, 0x4002, 22, InvalidArgument, "NVMe", "a field of the command is not valid";
    /// The opcode is not known, or no authorisation rule covers it.
    InvalidOpcode = 21, 0x4001, 95, Unimplemented, "4 (identity)", "this command is not known";
    /// The data pointer is not one keyed descriptor of the right length.
    InvalidSgl = 22, 0x400F, 22, InvalidArgument, "NVMe", "the data pointer does not describe the transfer";
    /// The data did not arrive or could not be delivered.
    TransferError = 23, 0x0004, 5, Unavailable, "NVMe", "the data could not be transferred";
    /// VOLUME ADD of a volume id that is taken.
    VolumeExists = 24, 0x41C0, 17, AlreadyExists, "VOLUME ADD", "the volume id is taken";
    /// VOLUME CHMOD or DELETE of a volume that is not there.
    VolumeAbsent = 25, 0x41C1, 2, NotFound, "VOLUME", "no such volume";
    /// The permission table is full.
    TableFull = 26, 0x41C2, 28, ResourceExhausted, "VOLUME ADD", "the permission table is full";
    /// A newer daemon has taken over.
    StaleTerm = 27, 0x41C3, 116, Aborted, "3 (terms)", "a newer daemon has taken over";
    /// The entry or map offered is not newer than the SSD's.
    StaleVersion = 28, 0x41C4, 116, Aborted, "3 (terms)", "the SSD holds a newer version";
    /// The volume id may not be used again before its sweep is durable.
    SweepPending = 29, 0x01C5, 16, FailedPrecondition, "10 (deletion)",
        "the volume id is still being swept";
    /// Connect was refused.
    ConnectRefused = 30, 0x4184, 111, PermissionDenied, "4 (identity)", "this host may not connect";
    /// Connect named a wrong queue, size, controller or subsystem.
    ConnectInvalid = 31, 0x4182, 22, InvalidArgument, "NVMe-oF", "the parameters of Connect are not valid";
    /// The queue is in the wrong state for the command, for example before Connect.
    SequenceError = 32, 0x400C, 71, FailedPrecondition, "NVMe", "the command came out of sequence";
    /// The command names a namespace that the SSD does not have.
    InvalidNamespace = 33, 0x400B, 22, InvalidArgument, "NVMe", "the namespace does not exist";
    /// Get Log Page named a page that the SSD does not have.
    InvalidLogPage = 34, 0x4109, 22, InvalidArgument, "NVMe", "the SSD has no such log page";
    /// Set Features asked for a value that survives power cycles.
    FeatureNotSaveable = 35, 0x410D, 95, Unimplemented, "NVMe", "the feature cannot be saved";
    /// Asynchronous Event Request beyond the limit of a controller.
    EventLimit = 36, 0x4105, 28, ResourceExhausted, "NVMe", "too many event requests are outstanding";
    /// Abort by the host ended the command before the SSD began it.
    AbortRequested = 37, 0x0007, 125, Aborted, "NVMe", "the command was aborted before it began";
    /// Compare: the blocks differ from the host's data.
    CompareFailed = 38, 0x4285, 84, FailedPrecondition, "NVMe",
        "the stored blocks differ from the data to compare";
    /// A read of a block without content, by a host that asked for an error in this case.
    Deallocated = 39, 0x4287, 61, FailedPrecondition, "NVMe", "a block of the range holds no data";
    /// The medium cannot read the page.
    Unreadable = 40, 0x0281, 5, Internal, "NVMe", "the page cannot be read from the medium";
    /// The host has not proven its name on this queue.
    AuthenticationRequired = 41, 0x4191, 13, PermissionDenied, "4 (identity)",
        "the host has not proven who it is";
    /// The SSD of this copy cannot be used, and a substitute that serves nothing answers for it. DNR: only
    /// the operator can end this.
    CopyUnusable = 42, 0x4707, 30, FailedPrecondition, "1 (serving and filling)",
        "the SSD of this copy cannot be used: gnstor status names it; put its file right and start the \
         array again";
    /// A member of the block's group is absent with the last copy of some block, or too few copies are left.
    GroupWaits = 43, 0x0708, 11, Unavailable, "1c (last copy)",
        "an SSD of the block's group is away with the last copy, or too few copies are left to write: wait \
         for it";
    /// An SSD of the block's group is full by the map, and the block is not mapped.
    GroupFull = 44, 0x4081, 28, ResourceExhausted, "15 (full)",
        "an SSD of the block's group is full: delete or trim, or add SSDs";
    /// The array id in a map or a command is not that of the SSD.
    OtherArray = 45, 0x41C6, 6, FailedPrecondition, "3b (array id)",
        "this SSD belongs to another array: connect to the right SSDs";
    /// LEASE ASK: a map took a place from the asking SSD. The voter holds this map, or knows that it is
    /// active.
    Deprived = 46, 0x01C7, 11, FailedPrecondition, "2a (serving lease)",
        "a newer map took places from this SSD: learn that map";
    /// LEASE ASK: the voter knows a higher number of openings of the asking SSD. DNR: its content is an older
    /// image.
    OlderImage = 47, 0x41C8, 116, FailedPrecondition, "2a (serving lease)",
        "this SSD was opened more often than its content says, so it is an older image: it is filled anew";
    /// The SSD has the last copy of the block's group by the map, and has lost writes. No copy serves: only
    /// the operator can say what is right.
    NeedsSalvage = 48, 0x0709, 11, Unavailable, "17 (salvage)",
        "no copy of the block serves, and this one has lost writes: gnstor fleet salvage merges the copies";
    /// Hosts have all controller ids or queue entries that they may have. Later there may be some.
    HostsFull = 49, 0x0181, 11, ResourceExhausted, "NVMe-oF",
        "hosts hold all controllers or queue entries that the SSD gives out: try again later";
}

/// DW0 of a refused command: the refusal's number, the SSD that refused, and the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Detail {
    /// The refusal's number; see [`Refusal::from_code`].
    pub code: u8,
    /// Number of the SSD in the fleet map, if the SSD says it. Numbers from 255 on find no room.
    pub ssd: Option<u8>,
    /// The volume id as the command had it, possibly a reserved value.
    pub vid: u16,
}

impl Detail {
    /// The detail word of a refusal about `vid`.
    pub fn new(refusal: Refusal, vid: Option<Vid>) -> Self {
        Self { code: refusal as u8, ssd: None, vid: vid.map_or(0, Vid::get) }
    }

    /// The same from this SSD.
    #[must_use]
    pub fn from_ssd(self, ssd: u16) -> Self {
        Self { ssd: u8::try_from(ssd).ok().filter(|ssd| *ssd < u8::MAX), ..self }
    }

    /// Packs to DW0: VID in 31:16, SSD + 1 in 15:8, code in 7:0.
    pub fn to_dw0(self) -> u32 {
        let ssd = self.ssd.map_or(0, |ssd| u32::from(ssd) + 1);
        u32::from(self.vid) << 16 | ssd << 8 | u32::from(self.code)
    }

    /// Unpacks from DW0.
    #[expect(clippy::cast_possible_truncation, reason = "taking fields out of a word")]
    pub fn from_dw0(dw0: u32) -> Self {
        Self { code: dw0 as u8, ssd: ((dw0 >> 8) as u8).checked_sub(1), vid: (dw0 >> 16) as u16 }
    }

    /// The refusal; `None` if this version does not know its number.
    pub fn refusal(self) -> Option<Refusal> {
        Refusal::from_code(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn every_refusal_has_a_number_of_its_own_and_comes_back() {
        let _deadline = Deadline::after(LIMIT);
        for &refusal in Refusal::ALL {
            assert_eq!(Refusal::from_code(refusal as u8), Some(refusal));
            assert!(!refusal.status().is_success(), "{refusal:?}");
            let detail = Detail::new(refusal, Vid::new(77));
            assert_eq!(Detail::from_dw0(detail.to_dw0()), detail);
            for (ssd, said) in [(0, Some(0)), (63, Some(63)), (254, Some(254)), (255, None), (u16::MAX, None)]
            {
                let from = detail.from_ssd(ssd);
                assert_eq!((from.ssd, Detail::from_dw0(from.to_dw0())), (said, from));
            }
        }
        assert_eq!(Refusal::from_code(0), None);
    }

    #[test]
    fn retryable_refusals_do_not_set_dnr() {
        let _deadline = Deadline::after(LIMIT);
        for refusal in [
            Refusal::LeaseExpired,
            Refusal::StaleMap,
            Refusal::NotHereYet,
            Refusal::AskTheFirst,
            Refusal::NotReady,
        ] {
            assert!(!refusal.status().do_not_retry(), "{refusal:?}");
        }
        for refusal in [
            Refusal::UnknownVolume,
            Refusal::NotAReader,
            Refusal::ReadOnly,
            Refusal::OutOfRange,
            Refusal::WrongTarget,
        ] {
            assert!(refusal.status().do_not_retry(), "{refusal:?}");
        }
    }
}
