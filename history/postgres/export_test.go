package postgres

import "time"

// PollEvery sets how often watches that are begun from now on poll.
func (db *DB) PollEvery(d time.Duration) { db.poll = d }
