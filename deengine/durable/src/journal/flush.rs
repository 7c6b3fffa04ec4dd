// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flushes of the journal: barrier for the data, pages, sync.

use super::*;

impl Journal {
    /// Writes committed transactions up to `upto`: full pages, or with `force` all of them. Then it syncs
    /// once and waits for that. The pages that these transactions name must be programmed. A barrier before
    /// the first journal page makes them durable.
    ///
    /// # Errors
    /// If the ring is full or the store fails. Then [`Self::durable`] does not change, and a later call
    /// writes the same pages again.
    pub fn flush(&mut self, upto: Seq, force: bool) -> Result<(), DurableError> {
        while self.is_flushing() {
            self.advance_flush(Patience::Blocks)?;
        }
        self.start_flush(upto, force)?;
        while self.is_flushing() {
            self.advance_flush(Patience::Blocks)?;
        }
        Ok(())
    }

    /// As [`Self::flush`], without waiting for the medium: [`Self::poll_flush`] goes on with it.
    ///
    /// # Errors
    /// As [`Self::flush`].
    ///
    /// # Panics
    /// If a flush is on its way.
    pub fn start_flush(&mut self, upto: Seq, force: bool) -> Result<(), DurableError> {
        assert!(self.flushing.is_none(), "one flush at a time");
        let upto = upto.min(self.last);
        let (count, _) = self.pack(&self.cursor(), upto, force);
        if count == 0 {
            return Ok(());
        }
        self.durable_area.mark_running()?;
        // When the host loses its power, any write since the last sync may be there: also a journal page
        // without the data that it names.
        let lost_before = self.store().lost_writes();
        match start_barrier(self.store(), DATA)? {
            Started::NotNeeded => {}
            Started::Ended => self.syncs.data += 1,
            Started::Running(ticket) => {
                self.syncs.data += 1;
                let sync = Running { ticket, lost_before };
                self.flushing = Some(Flushing::Data { sync, upto, force });
                return Ok(());
            }
        }
        self.write_pages(upto, force)
    }

    /// Whether a flush is on its way.
    #[inline]
    pub fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// Continues the flush in progress, if there is one and the medium has finished a step.
    ///
    /// # Errors
    /// As [`Self::flush`]; then no flush is in progress.
    pub fn poll_flush(&mut self) -> Result<(), DurableError> {
        self.advance_flush(Patience::None)
    }

    fn advance_flush(&mut self, patience: Patience) -> Result<(), DurableError> {
        let Some(flushing) = self.flushing.take() else { return Ok(()) };
        let (sync, what) = match flushing {
            Flushing::Data { sync, .. } => (sync, DATA),
            Flushing::Pages { sync, .. } => (sync, PAGES),
        };
        if end_sync(self.store(), sync, patience, what)?.is_pending() {
            self.flushing = Some(flushing);
            return Ok(());
        }
        match flushing {
            // Transactions after `upto` may name pages that were programmed after the sync began.
            Flushing::Data { upto, force, .. } => self.write_pages(upto, force),
            Flushing::Pages { cursor, .. } => {
                self.end_flush(&cursor);
                Ok(())
            }
        }
    }

    fn cursor(&self) -> Cursor {
        Cursor { page: self.next, seq: self.durable, bytes: 0 }
    }

    /// Writes pages and starts their sync; the data that they name is durable.
    fn write_pages(&mut self, upto: Seq, force: bool) -> Result<(), DurableError> {
        let lost_before = self.store().lost_writes();
        let mut cursor = self.cursor();
        let mut batch = 0;
        loop {
            let (count, bytes) = self.pack(&cursor, upto, force);
            if count == 0 {
                break;
            }
            if cursor.page - self.start >= self.ring_pages() {
                return Err(DurableError::RingFull { pages: self.ring_pages() });
            }
            self.build(&cursor, batch, count, bytes);
            batch += 1;
            cursor.page += 1;
            cursor.seq += u64::from(count);
            cursor.bytes += bytes;
            if batch == BATCH || cursor.page.is_multiple_of(self.ring_pages()) {
                self.write(&cursor, &mut batch)?;
            }
        }
        self.write(&cursor, &mut batch)?;
        let sync = start_sync(self.store(), lost_before, PAGES)?;
        self.syncs.journal += 1;
        match sync {
            Some(sync) => self.flushing = Some(Flushing::Pages { sync, cursor }),
            None => self.end_flush(&cursor),
        }
        Ok(())
    }

    /// The pages up to the cursor are durable.
    fn end_flush(&mut self, cursor: &Cursor) {
        self.next = cursor.page;
        self.durable = cursor.seq;
        self.tail.drop_front(cursor.bytes);
        if let Some(kept) = &mut self.kept {
            kept.drop_front(cursor.bytes as u64, self.durable);
        }
    }

    /// Number of transactions, and of their bytes, for the page at the cursor; `None` if the page should wait
    /// for more.
    fn pack(&self, cursor: &Cursor, upto: Seq, force: bool) -> (u16, usize) {
        let (mut count, mut bytes) = (0u16, 0);
        loop {
            let next = self.tail.length_at(cursor.bytes + bytes);
            if bytes + next.unwrap_or(MIN_TRANSACTION_BYTES) > PAYLOAD {
                return (count, bytes);
            }
            match next {
                Some(length) if cursor.seq + u64::from(count) < upto => {
                    count += 1;
                    bytes += length;
                }
                // The page is not full, and the next transaction must not be written yet.
                _ => return if force { (count, bytes) } else { (0, 0) },
            }
        }
    }

    fn build(&mut self, cursor: &Cursor, nth: usize, count: u16, bytes: usize) {
        let page = &mut self.scratch[nth * PAGE..(nth + 1) * PAGE];
        let (body, rest) = page[HEAD..].split_at_mut(bytes);
        body.copy_from_slice(&self.tail.committed()[cursor.bytes..cursor.bytes + bytes]);
        rest.fill(0);
        let head = PageHead {
            tag: self.durable_area.tag(),
            page: cursor.page,
            first: cursor.seq + 1,
            durable_pages: self.next,
            boot: self.boot,
            count,
            bytes: u16::try_from(bytes).expect("at most a page"),
        };
        head.seal(page);
    }

    /// Writes the batch that ends before the cursor's page. A batch ends where the ring does.
    fn write(&self, cursor: &Cursor, batch: &mut usize) -> Result<(), DurableError> {
        let pages = std::mem::take(batch);
        if pages == 0 {
            return Ok(());
        }
        let at = self.durable_area.ring_at(cursor.page - pages as u64);
        debug_assert!(
            at + pages as u64 * PAGE_U64 <= self.durable_area.ring_at(0) + self.ring_pages() * PAGE_U64
        );
        start_write(self.store(), at, &self.scratch[..pages * PAGE], PAGES)
    }
}
